"""Nodes on this machine, joined by a network that is as slow as asked: `roundelay emulate`.

    with Network(nodes=2, link=Link(rate=100e6)) as network:
        subprocess.run([*network.on(0), "ping", "-c", "1", network.host(1)])

Each node has an address, a host name and shared memory of its own; the files are everyone's. Nothing here
has a name outside: however the process that made the network ends, the kernel ends all that runs in it and
takes the namespaces back. So any number of networks may be there at a time.
"""

from roundelay.emulate.link import Link
from roundelay.emulate.network import Network, NetworkError, why_not

__all__ = ["Link", "Network", "NetworkError", "why_not"]
