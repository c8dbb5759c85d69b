"""How fast a link is, and how long a packet takes: the commands that make an interface so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_QUEUE_S = 0.02  # so much a link holds while it is busy
# The least that a host's own interface holds. TCP bounds what each connection has there, by two packets, and
# tries again only after 200 ms if the interface drops one.
_LEAST_HOST_QUEUE = 4 << 20
_MOST_BURST = 128 << 10
_LEAST_BURST = 16 << 10
_BURST_S = 0.012  # less than the timer needs would make the link slower than its rate
_UNCUT = 64 << 10  # bytes of the largest packet that the kernel hands to an interface, to be cut there
_IN_FLIGHT = 100_000  # packets that may be delayed at a time: more than any rate fills

# A kernel may lack the module of a kind of queue. The text says what that means, and the cure.
LACKING = {
    "tbf": "this kernel cannot limit a link's rate: load the module sch_tbf (modprobe sch_tbf)",
    "netem": "this kernel cannot delay packets: load the module sch_netem (modprobe sch_netem; on Fedora the "
    "package kernel-modules-extra has it), or leave the delay out",
}


@dataclass(frozen=True)
class Link:
    """Both directions of a link between a node and its switch.

    rate: bits a second in each direction; None: as fast as the machine is.
    delay: seconds that a packet takes from one end to the other.
    burst: bytes that a link that was idle lets pass at once; None: what suits the rate.
    """

    rate: float | None = None
    delay: float = 0.0
    burst: int | None = None

    def bytes_at_once(self) -> int:
        """Returns the burst, for a link that has a rate."""
        if self.burst is not None:
            return self.burst
        assert self.rate is not None
        return min(_MOST_BURST, max(_LEAST_BURST, int(self.rate / 8 * _BURST_S)))

    def commands(self, interface: str, host: bool) -> Iterator[tuple[str, list[str]]]:
        """Yields what shapes all that leaves by an interface: a key of LACKING, or "", and the command.

        host: the interface is a host's, and not a switch's.
        """
        add = ["tc", "qdisc", "add", "dev", interface]
        where = ["root"]
        if self.delay > 0:
            delay = ["delay", f"{self.delay * 1e6:.0f}us", "limit", str(_IN_FLIGHT)]
            yield "netem", [*add, *where, "handle", "1:", "netem", *delay]
            where = ["parent", "1:1"]
        if self.rate is not None:
            burst = self.bytes_at_once()
            # To cut a packet that is larger than the burst would take the machine's own time.
            yield "", ["ip", "link", "set", "dev", interface, "gso_max_size", str(min(_UNCUT, burst // 2))]
            queue = max(int(self.rate / 8 * _QUEUE_S), _LEAST_HOST_QUEUE if host else 0)
            speed = ["rate", f"{self.rate:.0f}bit", "burst", str(burst), "limit", str(queue + burst)]
            yield "tbf", [*add, *where, "tbf", *speed]
