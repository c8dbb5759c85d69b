"""The place of an optimizer on its way to a gradient pool and its buckets, for checkpoints (pool_plan.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from roundelay.tuning.buckets import Cuts

Names = tuple[str, ...]  # of gradients, without their optimizer's prefix


@dataclass(frozen=True)
class Proposals:
    """What rank 0 is about to propose. Other ranks have none of it."""

    first: Names = ()  # the order of the first step with gradients, while there is no pool
    order: Names = ()  # the order that the pool is to get; empty: the one it has
    cuts: Cuts | None = None  # the sizes that its buckets are to get; None: those that they have
    late: int = 0  # steps in a row whose buckets were out of place
    last: Names = ()  # the order of the last of these, if it was recorded


@dataclass(frozen=True)
class PoolState:
    """The pool's layout, and what the ranks were about to change. Only ``proposals`` differ between ranks."""

    order: Names = ()  # of the gradients in the pool; empty: there is none
    cuts: Cuts | None = None  # the sizes of the buckets; None: the pool is not in use yet
    ordering: bool = False  # all ranks wait for another order
    waits: bool = False  # a change of the layout waits for a flush
    proposals: Proposals = Proposals()

    @property
    def shared(self) -> tuple[Names, Cuts | None, bool, bool]:
        """The part that is alike on all ranks."""
        return self.order, self.cuts, self.ordering, self.waits

    def to_dict(self) -> dict[str, Any]:
        """Returns plain containers."""
        proposals = self.proposals
        return {
            "order": list(self.order),
            "cuts": list(self.cuts or ()),
            "ordering": self.ordering,
            "waits": self.waits,
            "proposals": {
                "first": list(proposals.first),
                "order": list(proposals.order),
                "cuts": list(proposals.cuts or ()),
                "late": proposals.late,
                "last": list(proposals.last),
            },
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> PoolState:
        """Reads what to_dict() returned. KeyError, TypeError or ValueError: it is something else."""
        proposals = state["proposals"]
        return cls(
            order=tuple(map(str, state["order"])),
            cuts=_cuts(state["cuts"]),
            ordering=bool(state["ordering"]),
            waits=bool(state["waits"]),
            proposals=Proposals(
                first=tuple(map(str, proposals["first"])),
                order=tuple(map(str, proposals["order"])),
                cuts=_cuts(proposals["cuts"]),
                late=int(proposals["late"]),
                last=tuple(map(str, proposals["last"])),
            ),
        )


class PoolOwner(Protocol):
    """Has the pool of an optimizer (optimizer/gradient_sync.py)."""

    def pool_state(self) -> PoolState:
        """Returns the pool's state, between two steps."""

    def restore_pool(self, state: PoolState) -> None:
        """Makes the pool, and its buckets if they are in use, without a message to other ranks.

        ValueError, RuntimeError or MemoryError: this rank cannot make them; call restart().
        """

    def restart(self) -> None:
        """Begins without a pool."""

    def in_step(self) -> bool:
        """Returns whether gradients of the next step were reduced, or are in flight."""

    def publish(self) -> None:
        """Gives the core this rank's values of the next round."""


def _cuts(numbers: list[int]) -> Cuts | None:
    return Cuts(*map(int, numbers)) if numbers else None
