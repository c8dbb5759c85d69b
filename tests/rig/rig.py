"""Makes the hosts, and runs programs on them."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

_TOOLS = ("unshare", "nsenter", "ip", "tc", "mount")
_NAMESPACES = ["--net", "--uts", "--mount"]  # of a node
_QUEUE = "20ms"  # so much a link holds while it is busy
_BURST = 128 << 10
_UNCUT = 64 << 10  # bytes of the largest packet that the kernel hands to an interface, to be cut there
_SETUP_S = 20.0
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
case "$host" in
{cases}
*) echo "ssh: Could not resolve hostname $host: Name or service not known" >&2; exit 255 ;;
esac
if [ -e {folder}/cut.$host ]; then
echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255
fi
exec {enter} env -i HOME="$HOME" PATH={path} sh -c "$*"
"""


_AnyRig = TypeVar("_AnyRig", bound="Rig")


class RigError(RuntimeError):
    """The machine does not allow it; the text says what."""


def why_not() -> str:
    """Tell why this machine can have no rig; "" if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"no {', '.join(missing)} here"
    try:
        with Rig(nodes=1):
            return ""
    except RigError as error:
        return str(error)


class Rig:
    """Hosts `node0`, `node1` ... for the length of a with block. One thread at a time.

    Args:
        nodes: how many, up to 250.
        mbit: what a node can send, and receive, in a second; None: as fast as the machine is.
        dead_end: nodes have a docker0 as well, of the same address everywhere, that leads nowhere.
        burst: bytes that a link that was idle lets pass at once.
        first_retransmission_s: after which TCP sends again what has no answer; None: what Linux chooses.

    """

    def __init__(
        self,
        nodes: int = 2,
        mbit: int | None = 1000,
        dead_end: bool = False,
        burst: int = _BURST,
        first_retransmission_s: float | None = None,
    ) -> None:
        self.nodes = nodes
        self.mbit = mbit
        self.dead_end = dead_end
        self.burst = burst
        self.first_retransmission_s = first_retransmission_s
        self._folder = tempfile.TemporaryDirectory(prefix="roundelay-rig-")
        self._holders: list[subprocess.Popen[bytes]] = []
        self._machine: list[str] = []  # a command's first words: run it in the rig, on no node
        self._pids: list[int] = []  # of the nodes' holders, as the rig numbers them

    def __enter__(self: _AnyRig) -> _AnyRig:
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
        """Name a node."""
        return f"node{node}"

    @staticmethod
    def address(node: int) -> str:
        """Tell a node's address; only the rig's nodes have one in this network."""
        return f"10.77.0.{node + 1}"

    def on(self, node: int) -> list[str]:
        """Tell the first words of a command that runs on a node, in the folder where it was called."""
        return [*self._machine, *self._enter(self._pids[node]), "env", f"--chdir={Path.cwd()}"]

    def sent_bytes(self, node: int) -> int:
        """Count what a node's interface has sent since it was made."""
        return int(self._text([*self.on(node), "cat", "/sys/class/net/eth0/statistics/tx_bytes"]))

    @property
    def commands(self) -> Path:
        """A folder for PATH, with an `ssh` that reaches the nodes, from within the rig."""
        return Path(self._folder.name) / "bin"

    def cut(self, node: int) -> None:
        """Take a node off the network for good; its own interface stays up."""
        self._text([*self._machine, *self._unplug(node)])
        self._cut_mark(node).touch()

    def interrupt(self, node: int, seconds: float) -> None:
        """Take a node off the network for so long, however busy the machine is."""
        plug = ["ip", "link", "set", f"port{node}", "master", self._switch_of(node)]
        program = f"{shlex.join(self._unplug(node))} && sleep {seconds} && {shlex.join(plug)}"
        self._text([*self._machine, "nice", "--adjustment=-20", "sh", "-c", program])

    @staticmethod
    def _unplug(node: int) -> list[str]:
        # Linux uses an interface up to a second after it is up again, and a switch its port at once.
        return ["ip", "link", "set", f"port{node}", "nomaster"]

    def _cut_mark(self, node: int) -> Path:
        return Path(self._folder.name) / f"cut.{self.host(node)}"

    def signal(self, node: int, pid: int, number: signal.Signals) -> None:
        """Send a signal to a process on a node, by the pid that it knows itself by."""
        self._text([*self.on(node), "sh", "-c", f"kill -{int(number)} {pid}"])

    def lose(self, node: int) -> None:
        """Take a node away as a power cut does: nothing of it says good-bye."""
        self.cut(node)
        self.end(node)

    def end(self, node: int) -> None:
        """Kill all that runs on a node. Its kernel lives on and says so to its peers."""
        network = self._text([*self.on(node), "readlink", "/proc/self/ns/net"]).strip()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended by itself
                if str((entry / "ns" / "net").readlink()) == network:
                    os.kill(int(entry.name), signal.SIGKILL)

    def mpirun(
        self, launcher: str, slots: Sequence[int], program: Sequence[str], exports: Iterable[str] = ()
    ) -> list[str]:
        """Make the command for so many ranks on each node, started from node 0 (Open MPI).

        Args:
            launcher: the mpirun.
            slots: ranks of each node.
            program: what they run.
            exports: variables that go along.

        """
        hosts = ",".join(f"{self.host(node)}:{count}" for node, count in enumerate(slots))
        settings = {
            "plm_ssh_agent": str(self.commands / "ssh"),
            # Every rig has the same pids: what a killed one has left in /tmp would be in the next one's way.
            "prte_tmpdir_base": self._folder.name,
            "mpi_yield_when_idle": "1",  # the nodes share the machine's cores, which no node knows
            "pml": "ob1",
            "btl": "self,sm,tcp",
            "btl_tcp_if_include": "10.77.0.0/24",  # it tries a dead end that looks alike on both sides
        }
        flags = [word for name, value in settings.items() for word in ("--mca", name, value)]
        flags += ["--allow-run-as-root", "--bind-to", "none", "--map-by", "slot", "--host", hosts]
        flags += [word for name in exports for word in ("-x", name)]
        return [*self.on(0), launcher, *flags, "-np", str(sum(slots)), *program]

    # --- how it is made -------------------------------------------------------------------------------------

    def _build(self) -> None:
        # Process 1 of process numbers of their own: with it the kernel ends all the others. It ends when its
        # input does, so with its maker.
        holder = self._hold(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        )
        own = f"/proc/{holder}/ns"
        self._machine = ["nsenter", f"--net={own}/net", f"--mount={own}/mnt", f"--pid={own}/pid_for_children"]
        self._add_switches()
        self._write_files()
        for node in range(self.nodes):
            self._add_node(node)
        self._write_ssh()

    def _add_switches(self) -> None:
        self._add_switch(self._switch_of(0))

    def _switch_of(self, node: int) -> str:
        """Name the switch that a node is connected to."""
        return "switch"

    def _add_switch(self, name: str) -> None:
        self._text([*self._machine, "ip", "link", "add", name, "type", "bridge"])
        self._text([*self._machine, "ip", "link", "set", name, "up"])

    def _add_node(self, node: int) -> None:
        self._hold([*self._machine, "unshare", *_NAMESPACES, "--propagation", "private"])
        pid = self._pids[node]
        port = f"port{node}"
        cable = ["ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid)]
        self._text([*self._machine, *cable])
        self._text([*self._machine, "ip", "link", "set", port, "master", self._switch_of(node), "up"])
        self._shape(self._machine, port, self.mbit)
        hosts = Path(self._folder.name) / "hosts"
        for command in (
            ["hostname", self.host(node)],
            ["mount", "--bind", str(hosts), "/etc/hosts"],
            ["mount", "-t", "sysfs", "sysfs", "/sys"],
            ["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"],
            ["ip", "link", "set", "lo", "up"],
            ["ip", "address", "add", f"{self.address(node)}/24", "dev", "eth0"],
            ["ip", "link", "set", "eth0", "up"],
        ):
            self._text([*self.on(node), *command])
        self._shape(self.on(node), "eth0", self.mbit)
        if self.first_retransmission_s is not None:
            after = f"{self.first_retransmission_s * 1000:.0f}ms"
            network = ["10.77.0.0/24", "dev", "eth0", "src", self.address(node)]
            self._text([*self.on(node), "ip", "route", "replace", *network, "rto_min", after])
        if self.dead_end:
            self._add_dead_end(self.on(node))

    def _add_dead_end(self, where: list[str]) -> None:
        ends = ["docker0", "docker1"]  # both stay here; one without the other would not run
        self._text([*where, "ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]])
        self._text([*where, "ip", "address", "add", "172.17.0.1/16", "dev", ends[0]])
        for end in ends:
            self._text([*where, "ip", "link", "set", end, "up"])

    def _shape(self, where: list[str], interface: str, mbit: int | None) -> None:
        if mbit is None:
            return
        # To cut a packet that is larger than the burst would take the machine's own time.
        uncut = str(min(_UNCUT, self.burst // 2))
        self._text([*where, "ip", "link", "set", "dev", interface, "gso_max_size", uncut])
        speed = ["rate", f"{mbit}mbit", "burst", str(self.burst), "latency", _QUEUE]
        self._text([*where, "tc", "qdisc", "add", "dev", interface, "root", "tbf", *speed])

    def _write_files(self) -> None:
        lines = ["127.0.0.1 localhost"]
        lines += [f"{self.address(node)} {self.host(node)}" for node in range(self.nodes)]
        (Path(self._folder.name) / "hosts").write_text("\n".join(lines) + "\n")

    def _write_ssh(self) -> None:
        """Write what stands in for ssh inside the rig: like it, it takes no environment along."""
        cases = [f"{self.host(node)}) pid={pid} ;;" for node, pid in enumerate(self._pids)]
        enter = " ".join(self._enter("$pid"))
        self.commands.mkdir()
        ssh = self.commands / "ssh"
        ssh.write_text(
            _SSH.format(folder=self._folder.name, cases="\n".join(cases), path=os.defpath, enter=enter)
        )
        ssh.chmod(0o755)

    @staticmethod
    def _enter(pid: int | str) -> list[str]:
        return ["nsenter", f"--target={pid}", *_NAMESPACES]

    def _hold(self, command: list[str]) -> int:
        """Start a process that lives until its input ends; returns its starter's pid, as seen from here."""
        program = ["sh", "-c", "echo $$; exec cat >/dev/null"]
        holder = subprocess.Popen(
            [*command, *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._holders.append(holder)
        assert holder.stdout is not None
        line = holder.stdout.readline()  # it is inside its namespaces when it says this
        if not line:
            raise RigError(f"{' '.join(command)}: {holder.communicate()[1].decode().strip()}")
        if len(self._holders) > 1:
            self._pids.append(int(line))
        return holder.pid

    @staticmethod
    def _text(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SETUP_S,
            check=False,
        )
        if done.returncode != 0:
            raise RigError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def _tear_down(self) -> None:
        for holder in self._holders[:1]:
            holder.send_signal(signal.SIGKILL)  # and with it, by --kill-child, all that runs in the rig
        for holder in self._holders:
            holder.communicate()
        self._holders.clear()
        self._pids.clear()
        self._folder.cleanup()
