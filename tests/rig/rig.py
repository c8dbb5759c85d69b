"""An emulated network with what tests and benchmarks do to it: faults, counters, and an mpirun."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

from roundelay.emulate import Link, Network


class Rig(Network):
    """Hosts `node0`, `node1` ... for the length of a with block. One thread at a time.

    Args:
        nodes: how many.
        mbit: what a node can send, and receive, in a second; None: as fast as the machine is.
        dead_end: nodes have a docker0 as well, of the same address everywhere, that leads nowhere.
        burst: bytes that a link that was idle lets pass at once; None: what suits the rate.
        first_retransmission_s: after which TCP sends again what has no answer; None: what Linux chooses.

    """

    def __init__(
        self,
        nodes: int = 2,
        mbit: int | None = 1000,
        dead_end: bool = False,
        burst: int | None = None,
        first_retransmission_s: float | None = None,
    ) -> None:
        rate = mbit * 1e6 if mbit is not None else None
        super().__init__(nodes, Link(rate, burst=burst), shares_cpus=True)
        self.dead_end = dead_end
        self.first_retransmission_s = first_retransmission_s

    def sent_bytes(self, node: int) -> int:
        """Count what a node's interface has sent since it was made."""
        return int(self._text([*self.on(node), "cat", "/sys/class/net/eth0/statistics/tx_bytes"]))

    def cut(self, node: int) -> None:
        """Take a node off the network for good; its own interface stays up."""
        self._text([*self._machine, *self._unplug(f"port{node}")])
        self._entrance(node).unlink(missing_ok=True)

    def interrupt(self, node: int, seconds: float) -> None:
        """Take a node off the network for so long, however busy the machine is."""
        self._interrupt(f"port{node}", self._switch_of(node), seconds)

    def _interrupt(self, port: str, switch: str, seconds: float) -> None:
        plug = ["ip", "link", "set", port, "master", switch]
        program = f"{shlex.join(self._unplug(port))} && sleep {seconds} && {shlex.join(plug)}"
        self._text([*self._machine, "nice", "--adjustment=-20", "sh", "-c", program])

    @staticmethod
    def _unplug(port: str) -> list[str]:
        # Linux uses an interface up to a second after it is up again, and a switch its port at once.
        return ["ip", "link", "set", port, "nomaster"]

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

    @property
    def _connections(self) -> list[str]:
        after = self.first_retransmission_s
        own = [] if after is None else ["rto_min", f"{after * 1000:.0f}ms"]
        return [*super()._connections, *own]

    def _add_node(self, node: int) -> None:
        super()._add_node(node)
        if self.dead_end:
            self._add_dead_end(self.on(node))

    def _add_dead_end(self, where: list[str]) -> None:
        ends = ["docker0", "docker1"]  # both stay here; one without the other would not run
        self._text([*where, "ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]])
        self._text([*where, "ip", "address", "add", "172.17.0.1/16", "dev", ends[0]])
        for end in ends:
            self._text([*where, "ip", "link", "set", end, "up"])
