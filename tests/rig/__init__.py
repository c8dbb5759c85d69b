"""Several hosts on one machine: network namespaces joined by a switch whose links have a speed.

    with Rig(nodes=2, mbit=1000) as rig:
        rig.mpirun(ranks=4, program=["python", "train.py"])

Each node has an address, a hostname and shared memory of its own; the files are everyone's. Nothing here
has a name outside: however the process that made the rig ends, the kernel ends all that runs in it and takes
the namespaces back.
"""

from tests.rig.racks import RackRig
from tests.rig.rig import Rig, RigError, why_not

__all__ = ["RackRig", "Rig", "RigError", "why_not"]
