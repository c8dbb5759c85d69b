"""A rig whose nodes are in racks, with slow links between the racks."""

from __future__ import annotations

from pathlib import Path

from roundelay.emulate import Link
from tests.rig.rig import Rig

_CORE = "core"  # the switch that connects the racks


class RackRig(Rig):
    """Racks of equally many hosts, numbered through: rack 0 has `node0`, `node1` ...

    Each rack has a switch, and its uplink to the others can be slower than its nodes are.

    Args:
        racks: how many.
        nodes: of each rack.
        mbit: what a node can send, and receive, in a second.
        uplink_mbit: the same of a rack.

    """

    def __init__(self, racks: int, nodes: int, mbit: int, uplink_mbit: int) -> None:
        super().__init__(racks * nodes, mbit)
        self.racks = racks
        self.uplink_mbit = uplink_mbit

    def rack_of(self, node: int) -> int:
        """Tell the rack of a node."""
        return node * self.racks // self.nodes

    def interrupt_rack(self, rack: int, seconds: float) -> None:
        """Take a rack off the others for so long."""
        self._interrupt(f"down{rack}", _CORE, seconds)

    @property
    def topology(self) -> str:
        """The value of ROUNDELAY_TOPOLOGY that describes the racks."""
        return f"rack={self.racks},node={self.nodes // self.racks}"

    @property
    def uplink_counters(self) -> list[Path]:
        """Files that any program in the rig can read: what each rack has sent to the others, in bytes."""
        net = self._counters / "class" / "net"
        return [net / f"up{rack}" / "statistics" / "tx_bytes" for rack in range(self.racks)]

    @property
    def _counters(self) -> Path:
        return self._path / "switches"

    def _switch_of(self, node: int) -> str:
        return f"rack{self.rack_of(node)}"

    def _add_switches(self) -> None:
        # The switches' own view of /sys: nodes see their own interfaces in theirs.
        self._counters.mkdir()
        self._text([*self._machine, "mount", "-t", "sysfs", "sysfs", str(self._counters)])
        self._add_switch(_CORE)
        for rack in range(self.racks):
            self._add_switch(f"rack{rack}")
            ends = [f"up{rack}", f"down{rack}"]  # what the rack sends leaves at `up`
            cable = ["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]]
            self._text([*self._machine, *cable])
            for end, switch in zip(ends, (f"rack{rack}", _CORE), strict=True):
                self._text([*self._machine, "ip", "link", "set", end, "master", switch, "up"])
                self._shape(self._machine, end, Link(self.uplink_mbit * 1e6), host=False)
