"""Makes the nodes, and tells how to run programs on them."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from roundelay.emulate.link import LACKING, Link
from roundelay.run.agent import affinity

MOST_NODES = 250
_TOOLS = {"unshare": "util-linux", "nsenter": "util-linux", "taskset": "util-linux", "mount": "mount"}
_TOOLS |= {"ip": "iproute2", "tc": "iproute2"}
_NAMESPACES = ["--net", "--uts", "--mount"]  # of a node
_SETUP_S = 20.0
CURE = (
    "run it with sudo; in a container, start that with --privileged (Docker, Podman), or leave the container"
)
# A process that lives until its input ends. It says its pid when it is inside its namespaces.
_HOLDER = "echo $$; cat >/dev/null"
# The first one ends with the network's maker, however that ends. Then nobody else removes the folder.
_FIRST_HOLDER = f'{_HOLDER}; rm -rf --one-file-system "$0"'
# What stands in for ssh inside the network: like it, it takes no environment along.
_SSH = """#!/bin/sh
while :; do
case "$1" in
-[bcDEeFIiJLlmOoPpRSWw]) shift 2 ;;
-*) shift ;;
*) break ;;
esac
done
host=${{1#*@}}
shift
enter={folder}/enter.$host
if ! [ -e "$enter" ]; then
echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255
fi
exec "$enter" env -i HOME="$HOME" PATH={path} sh -c "$*"
"""

_AnyNetwork = TypeVar("_AnyNetwork", bound="Network")


class NetworkError(RuntimeError):
    """The machine does not allow it; the text says what."""


def why_not() -> str:
    """Returns why this process can make no network, with its rate, on this machine; "" if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with Network(nodes=1, link=Link(rate=1e9)):
            return ""
    except NetworkError as error:
        return str(error)


def check_tools() -> None:
    """Raises NetworkError if a command that makes the network is missing here."""
    missing = {tool: package for tool, package in _TOOLS.items() if shutil.which(tool) is None}
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise NetworkError(f"no {', '.join(missing)} on PATH: apt-get install {packages}")


class Network:
    """Nodes `node0`, `node1` ... for the length of a with block. One thread at a time. Needs root.

    Args:
        nodes: how many, up to MOST_NODES.
        link: between each node and the switch.
        shares_cpus: each node may use all CPUs, and not only a share of its own, if there are enough.

    """

    def __init__(self, nodes: int = 2, link: Link | None = None, shares_cpus: bool = False) -> None:
        self.nodes = nodes
        self.link = link or Link()
        self._folder = tempfile.TemporaryDirectory(prefix="roundelay-emulate-")
        self._holders: list[subprocess.Popen[bytes]] = []
        self._machine: list[str] = []  # a command's first words: run it in the network, on no node
        self._pids: list[int] = []  # of the nodes' holders, as the network numbers them
        cores = affinity.read_nodes(os.sched_getaffinity(0))
        self._cpus = [None if shares_cpus else affinity.share(cores, node, nodes) for node in range(nodes)]

    def __enter__(self: _AnyNetwork) -> _AnyNetwork:
        try:
            self._build()
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tear_down()

    @staticmethod
    def host(node: int) -> str:
        """Returns a node's host name."""
        return f"node{node}"

    @staticmethod
    def address(node: int) -> str:
        """Returns a node's address; only the nodes have one in this network."""
        return f"10.77.0.{node + 1}"

    def cpus(self, node: int) -> set[int] | None:
        """Returns the CPUs that are a node's own; None: it shares them all."""
        return self._cpus[node]

    def on(self, node: int) -> list[str]:
        """Returns the first words of a command that runs on a node, in the folder where it was called."""
        return [*self._machine, *self._enter(node), "env", f"--chdir={Path.cwd()}"]

    @property
    def commands(self) -> Path:
        """A folder for PATH, with an `ssh` that reaches the nodes, from within the network."""
        return self._path / "bin"

    def signal(self, node: int, pid: int, number: int) -> None:
        """Sends a signal to a process on a node, by the pid that it knows itself by."""
        self._text([*self.on(node), "sh", "-c", f"kill -{int(number)} {pid}"])

    # --- how it is made -------------------------------------------------------------------------------------

    @property
    def _path(self) -> Path:
        """Where its files are."""
        return Path(self._folder.name)

    def _build(self) -> None:
        check_tools()
        # Process 1 of process numbers of their own: with it the kernel ends all the others. It ends when its
        # input does, so with its maker.
        own = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        try:
            holder, _ = self._hold([*own, "sh", "-c", _FIRST_HOLDER, self._folder.name])
        except NetworkError as error:
            raise NetworkError(f"{error}: {CURE}") from None
        there = f"/proc/{holder}/ns"
        self._machine = [
            "nsenter", f"--net={there}/net", f"--mount={there}/mnt", f"--pid={there}/pid_for_children"
        ]  # fmt: skip
        self._add_switches()
        lines = [f"{self.address(node)} {self.host(node)}" for node in range(self.nodes)]
        (self._path / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        for node in range(self.nodes):
            self._add_node(node)
        self.commands.mkdir()
        ssh = _SSH.format(folder=shlex.quote(self._folder.name), path=os.defpath)
        self._write_script(self.commands / "ssh", ssh)

    def _add_switches(self) -> None:
        self._add_switch(self._switch_of(0))

    def _switch_of(self, node: int) -> str:
        """Returns the name of the switch that a node is connected to."""
        return "switch"

    def _add_switch(self, name: str) -> None:
        self._text([*self._machine, "ip", "link", "add", name, "type", "bridge"])
        self._text([*self._machine, "ip", "link", "set", name, "up"])

    def _add_node(self, node: int) -> None:
        unshare = [*self._machine, "unshare", *_NAMESPACES, "--propagation", "private"]
        self._pids.append(self._hold([*unshare, "sh", "-c", _HOLDER])[1])
        port = f"port{node}"
        pair = ["type", "veth", "peer", "name", "eth0", "netns", str(self._pids[node])]
        self._text([*self._machine, "ip", "link", "add", port, *pair])
        self._text([*self._machine, "ip", "link", "set", port, "master", self._switch_of(node), "up"])
        self._shape(self._machine, port, self.link, host=False)
        for command in (
            ["hostname", self.host(node)],
            ["mount", "--bind", str(self._path / "hosts"), "/etc/hosts"],
            ["mount", "-t", "sysfs", "sysfs", "/sys"],
            ["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"],
            ["ip", "link", "set", "lo", "up"],
            ["ip", "address", "add", f"{self.address(node)}/24", "dev", "eth0"],
            ["ip", "link", "set", "eth0", "up"],
        ):
            self._text([*self.on(node), *command])
        network = ["10.77.0.0/24", "dev", "eth0", "src", self.address(node)]
        self._text([*self.on(node), "ip", "route", "replace", *network, *self._connections])
        self._shape(self.on(node), "eth0", self.link, host=True)
        enter = shlex.join(self._enter(node))
        self._write_script(self._entrance(node), f'#!/bin/sh\nexec {enter} "$@"\n')

    @property
    def _connections(self) -> list[str]:
        """Returns what holds for TCP's connections, as `ip route` takes it.

        Linux's own choice, whatever this machine's is: with bbr, steps take other times.
        """
        return ["congctl", "cubic"]

    def _shape(self, where: list[str], interface: str, link: Link, host: bool) -> None:
        for needed, command in link.commands(interface, host):
            try:
                self._text([*where, *command])
            except NetworkError as error:
                if needed and "qdisc kind is unknown" in str(error):
                    raise NetworkError(LACKING[needed]) from None
                raise

    def _enter(self, node: int) -> list[str]:
        cpus = self._cpus[node]
        bind = ["taskset", "--cpu-list", affinity.shown(cpus)] if cpus is not None else []
        return ["nsenter", f"--target={self._pids[node]}", *_NAMESPACES, *bind]

    def _entrance(self, node: int) -> Path:
        """Returns the script through which ssh reaches a node."""
        return self._path / f"enter.{self.host(node)}"

    @staticmethod
    def _write_script(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def _hold(self, command: list[str]) -> tuple[int, int]:
        """Starts a holder. Returns its starter's pid as seen from here, and its own as it sees itself."""
        holder = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the job, which then ends in order
        )
        self._holders.append(holder)
        assert holder.stdout is not None
        line = holder.stdout.readline()
        if not line:
            raise NetworkError(holder.communicate()[1].decode().strip())
        return holder.pid, int(line)

    @staticmethod
    def _text(command: Sequence[str]) -> str:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SETUP_S,
            check=False,
        )
        if done.returncode != 0:
            raise NetworkError(f"{shlex.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def _tear_down(self) -> None:
        for holder in self._holders[:1]:
            holder.send_signal(signal.SIGKILL)  # and with it, by --kill-child, all that runs in the network
        for holder in self._holders:
            holder.communicate()
        self._holders.clear()
        self._pids.clear()
        self._folder.cleanup()
