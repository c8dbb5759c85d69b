"""The pools of one optimizer as they are now, and the order in which its gradients come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from roundelay import _core
from roundelay.torch._internal.gradients.gradient import Gradient
from roundelay.torch._internal.gradients.pool import PoolBucket, Pools, wire_dtype
from roundelay.tuning.buckets import Cuts

Maker = Callable[[Sequence[Gradient]], Pools]  # makes pools of gradients in this order


class PoolLayout:
    """The pools, and the buckets that they are cut into: none until cut() is called.

    cuts: the sizes of the buckets. most: bytes of a bucket.
    """

    def __init__(self, cuts: Cuts, most: int) -> None:
        self.pools: Pools | None = None
        self.buckets: list[PoolBucket] = []
        self.cuts = cuts
        self._most = most

    @torch.no_grad()
    def lay_out(self, order: Sequence[Gradient], make: Maker) -> None:
        """Makes pools, or lays out those that are there: the key of their regions is in use.

        ValueError, RuntimeError or MemoryError: this rank cannot.
        """
        if self.pools is None:
            self.pools = make(order)
            return
        if set(order) != set(self.pools.gradients()):
            raise ValueError("they have other gradients than the pool that is there already")
        self.pools.arrange(order)

    def cut(self, cuts: Cuts) -> list[PoolBucket]:
        """Cuts the pools into buckets of these sizes, and returns them."""
        assert self.pools is not None
        self.cuts = cuts
        self.buckets = self.pools.cut(cuts, self._most)
        return self.buckets


class RecordedOrder:
    """The order in which gradients came on this rank. The reducer records it while it is asked to."""

    def __init__(self, reducer: _core.Reducer) -> None:
        self._reducer = reducer
        self.first: tuple[Gradient, ...] = ()  # in the first step with gradients
        self.ready: dict[Gradient, float] = {}  # in the last step, in seconds from its first one

    def step_over(self, members: Sequence[Gradient]) -> tuple[Gradient, ...]:
        """Ends a step. Returns the order of those that may be in a pool; nothing if none was recorded."""
        ready_times = self._reducer.ready_times
        ready = _seconds(ready_times, members) if ready_times else {}
        if ready:
            self.ready = ready
            self.first = self.first or tuple(ready)
        return tuple(ready)

    def complete(self, members: Sequence[Gradient]) -> None:
        """Takes the times of a step that is not over, if it has none: a loaded state brings none."""
        self.ready = self.ready or _seconds(self._reducer.ready_times, members)


def _seconds(
    ready_times: Sequence[tuple[_core.Gradient, int]], members: Sequence[Gradient]
) -> dict[Gradient, float]:
    """Returns when gradients came that may be in a pool, in seconds from the first one on."""
    records = {gradient.core: gradient for gradient in members if gradient.group is None}
    at: dict[Gradient, int] = {}
    for core, time in ready_times:
        gradient = records.get(core)
        if gradient is not None and gradient not in at and wire_dtype(gradient) is not None:
            at[gradient] = time
    first = min(at.values(), default=0)
    return {gradient: (time - first) * 1e-9 for gradient, time in at.items()}
