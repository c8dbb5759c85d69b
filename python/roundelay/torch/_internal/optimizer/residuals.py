"""The residuals of one optimizer's techniques by parameter, in which form they outlive the buckets.

When the ranks of an elastic job change, the buckets are gone, and there are other shards. So each rank keeps
its own residuals as parts of its parameters' gradients, and adds them to its first gradients afterwards: the
*flush step* of a generation, which is dense. What a rank keeps back never moves to another rank.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch.autograd.graph import Node
from torch.utils.hooks import RemovableHandle

from roundelay import _core
from roundelay.torch._internal.gradients.gradient import Gradient
from roundelay.torch._internal.gradients.pool import PoolBucket
from roundelay.torch._internal.gradients.pool_strides import pool_strides
from roundelay.torch._internal.nodes import Levels
from roundelay.torch._internal.optimizer.bucket_techniques import BucketTechniques
from roundelay.torch.process_sets import ProcessSet

# By the parameter's name: the first element of the part, in the order of the pool, and its values.
Kept = dict[str, tuple[int, torch.Tensor]]


class Residuals:
    """This rank's residuals: those in the buckets, and those of an earlier generation that wait for a step.

    records: all gradients of the optimizer; more may come.
    """

    def __init__(
        self, table: BucketTechniques, process_set: ProcessSet, records: Mapping[int, Gradient]
    ) -> None:
        self._table, self._set, self._records = table, process_set, records
        self._waiting: Kept = {}  # tensors that nobody changes: a commit may have them, too
        self._added: dict[str, bool] = {}  # these gradients have them; True: a technique may keep some again
        self._flushed: frozenset[str] = frozenset()
        self._taken = False  # the buckets' residuals wait for a step, and are no longer in the buckets
        self._hooks: list[tuple[Node, RemovableHandle]] = []  # a node lives as long as somebody has it

    def kept(self) -> Kept:
        """Returns all residuals of this rank, as copies; between two steps."""
        found = dict(self._waiting)
        for bucket in () if self._taken else self._table.buckets:
            if bucket.core.unflushed:
                for name, part in self._parts(bucket).items():
                    found[name] = _together(part, found.get(name))
        return found

    def _parts(self, bucket: PoolBucket) -> Kept:
        """Returns the residual of each of the bucket's parameters."""
        state, size = bucket.core.state, self._set.size()
        assert state is not None
        levels = Levels.of(self._set, bucket.pool.device.type != "cpu")
        even = levels.members * levels.nodes == size
        first, count, factor = bucket.core.residual(levels.place, levels.members, even, size)
        place = range(first, first + count)
        dtype = torch.float64 if bucket.pool.dtype == torch.float64 else torch.float32
        values = state[: len(place) * dtype.itemsize].view(dtype)
        parts: Kept = {}
        for gradient, own in zip(bucket.members, bucket.ranges(), strict=True):
            # A parameter that has no part here has one on another rank: names are the same on all.
            part = range(max(own.start, place.start), min(own.stop, place.stop)) or own[:0]
            found = values[part.start - place.start : part.stop - place.start] if part else values[:0]
            parts[self._table.short(gradient.name)] = part.start - own.start, found * factor
        return parts

    def put(self, kept: Kept) -> None:
        """Makes these this rank's residuals, in place of all others. The next step sends them."""
        self._waiting = dict(kept)
        self._added.clear()  # of the residuals before
        for bucket in self._table.buckets:
            if bucket.core.state is not None:
                bucket.core.state.zero_()
        self._taken = True
        self.flush(kept.keys())
        self.new_gradients()

    def forget_buckets(self) -> bool:
        """Notes that buckets go. Returns whether gradients that they keep back are lost."""
        taken, self._taken = self._taken, False
        return not taken and self._table.keeps_something()

    def flush(self, names: Collection[str]) -> None:
        """Notes the parameters to whose next gradient some rank adds a residual. The same on all ranks.

        If a parameter has no gradient in the next step, it stays noted until it has one.
        """
        self._flushed = frozenset(names)

    def flushed(self) -> dict[str, torch.Tensor]:
        """Returns these parameters by name, until a step has had their gradients. The same on all ranks."""
        records = self._records.values() if self._flushed else ()
        every = ((self._table.short(one.name), one.core.parameter) for one in records)
        return {name: one for name, one in every if one is not None and name in self._flushed}

    def waits(self) -> bool:
        """Returns whether this rank has residuals that wait for a step."""
        return bool(self._waiting)

    def rescale(self, factor: float) -> None:
        """Multiplies those that wait."""
        self._waiting = {name: (first, part * factor) for name, (first, part) in self._waiting.items()}

    def new_gradients(self) -> None:
        """Begins new gradients. They get the residuals, too, if no step has taken the last ones."""
        self._drop(name for name, kept_again in self._added.items() if kept_again)
        for _, hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._added.clear()
        for gradient in self._records.values() if self._waiting else ():
            name, parameter = self._table.short(gradient.name), gradient.core.parameter
            if name in self._waiting and parameter is not None and parameter.requires_grad:
                self._hooks.append(self._hook(name, gradient.core, parameter))
        # No momentum is added to what a flush sends: residuals that come late have theirs already.
        self._table.flush_next([name for name, one in self.flushed().items() if one.requires_grad])

    def end_step(self) -> None:
        """Ends a step, which has sent what gradients had. A parameter without a gradient waits for one."""
        self._drop(self._added)
        self._flushed = frozenset(name for name, one in self.flushed().items() if one.grad is None)
        self._added.clear()
        self._taken = False

    def _drop(self, names: Iterable[str]) -> None:
        gone = set(names)
        self._waiting = {name: part for name, part in self._waiting.items() if name not in gone}

    def _hook(self, name: str, core: _core.Gradient, parameter: torch.Tensor) -> tuple[Node, RemovableHandle]:
        """Makes a residual a part of what is added to ``.grad``; torch.autograd.grad() does not return it."""
        strides, reference = pool_strides(parameter), weakref.ref(parameter)

        def add(gradients: tuple[torch.Tensor | None]) -> tuple[torch.Tensor] | None:
            gradient, owner = gradients[0], reference()
            if gradient is None or owner is None:
                return None
            if name in self._added and (core.has_set_aside or owner.grad is not None):
                return None  # otherwise somebody has thrown the first gradient away
            self._added[name] = bool(self._table.buckets) and name not in self._flushed
            first, part = self._waiting[name]
            whole = part.new_zeros(gradient.numel())
            whole[first : first + len(part)] = part
            return ((whole.as_strided(gradient.shape, strides) + gradient).to(gradient.dtype),)

        with torch.enable_grad():
            node: Any = parameter.expand_as(parameter).grad_fn
        accumulates: Node = node.next_functions[0][0]
        return accumulates, accumulates.register_prehook(add)


def _together(part: tuple[int, torch.Tensor], other: tuple[int, torch.Tensor] | None) -> Any:
    """Returns the sum of a parameter's parts; one of them may have waited since before there were buckets."""
    if other is None:
        return part
    first = min(part[0], other[0])
    total = part[1].new_zeros(max(one + len(values) for one, values in (part, other)) - first)
    for one, values in (part, other):
        total[one - first : one - first + len(values)] += values
    return first, total
