"""An optimizer's gradients in one piece of memory for each dtype, in the order in which backward brings them.

The pool is cut into buckets of about ROUNDELAY_THETA bytes. A bucket is submitted when its last gradient
is there, and reduced where it lies: nothing is packed, and within a node the ranks read each other's
buckets in shared memory. ``.grad`` is an entry of the pool: when autograd has made a new tensor (after
zero_grad()), it is copied in once; when the entry was kept, autograd adds to it in place.

Source: lazy allreduce on a gradient pool, GradientFlow (arXiv 1902.06855), section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from roundelay import _core
from roundelay.torch.compression import Compression
from roundelay.torch.gradient import Contribution, Gradient, Reduction
from roundelay.torch.gradient_groups import GradientGroup
from roundelay.torch.process_sets import set_id

_ALIGNMENT = 64  # bytes
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)  # of a pool, on the wire
_KEYS = 2**22 - 2 * len(_DTYPES)


@dataclass(slots=True)
class _Place:
    """Where a gradient lies."""

    offset: int
    bytes: int
    entry: int = -1  # its number in the pool


def wire_dtype(gradient: Gradient) -> torch.dtype | None:
    """In what type a gradient would lie in a pool; None where it cannot."""
    rule, parameter = gradient.rule, gradient.parameter
    known = rule.compression in (Compression.none, Compression.fp16, Compression.bf16)
    if parameter is None or not known or parameter.device.type != "cpu":
        return None
    if parameter.layout != torch.strided or parameter.numel() == 0:
        return None
    sent, _ = rule.compression.compress(parameter.detach().new_empty(0))
    return sent.dtype if sent.dtype in _DTYPES else None


class Bucket(GradientGroup):
    """A range of a pool: its gradients are reduced by one operation.

    The first time in a step they are reduced in the pool. Later ones (a second backward before step()) are
    reduced where autograd has put them, as the pool holds the first result.
    """

    def __init__(self, name: str, pool: _core.GradientPool, dtype: torch.dtype) -> None:
        super().__init__(name, alone=False)
        self._pool = pool
        self._dtype = dtype
        self._places: dict[Gradient, _Place] = {}

    def place(self, gradient: Gradient, place: _Place) -> None:
        """Takes the next gradient in."""
        parameter = gradient.parameter
        assert parameter is not None
        place.entry = self._pool.add(place.offset, parameter, self._dtype)
        self._places[gradient] = place
        self.members.append(gradient)

    def arrived(self, gradient: Gradient) -> None:
        """Takes the gradient in at once, while it is in the cache."""
        local = gradient.local()
        if self._passes == 0 and local is not None and gradient.sparse_dimensions() == 0:
            self._take_in(gradient, local)
        super().arrived(gradient)

    def _take_in(self, gradient: Gradient, local: torch.Tensor | None) -> torch.Tensor:
        """The entry, holding this rank's contribution; ``.grad`` where it can be."""
        entry = self._pool.fill(self._places[gradient].entry, local)
        parameter = gradient.parameter
        assert parameter is not None
        if entry.dtype == parameter.dtype and (local is None or not local.requires_grad):
            parameter.grad = entry
        return entry

    def catch_up(self) -> None:
        """Submits the whole bucket: in the pool, if it is the first time since the last step."""
        if self._passes > 0:
            super().catch_up()
            return
        given = []
        for member in self.members:
            if member.wanted:
                given.append((member, self._contribution(member)))
            else:  # frozen here: what others have for it is of no use
                self._pool.fill(self._places[member].entry, None)
        self._waiting.clear()
        first, last = (self._places[self.members[i]] for i in (0, -1))
        rule = self.members[0].rule
        handle = self._pool.allreduce_async(
            first.offset,
            (last.offset + last.bytes - first.offset) // self._dtype.itemsize,
            self._dtype,
            self._next_name(self.name),
            rule.op,
            rule.prescale_factor,
            rule.postscale_factor,
        )
        for gradient, contribution in given:
            contribution.handle = handle
            gradient.flights.append(contribution)

    def _contribution(self, gradient: Gradient) -> Contribution:
        entry = self._take_in(gradient, gradient.take())
        parameter = gradient.parameter
        assert parameter is not None
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, requires_grad=False)
        result = gradient.depart(parameter.grad)
        context = None if entry.dtype == result.dtype else result.dtype
        return Contribution(result, entry, context)


def _cut(places: Iterable[_Place], theta: int, most: int) -> list[list[_Place]]:
    """Neighbours, until a bucket has theta bytes; of more than ``most`` only what is alone."""
    buckets: list[list[_Place]] = []
    full = True
    for place in places:
        if not full:
            begin = buckets[-1][0].offset
            full = place.offset - begin >= theta or place.offset + place.bytes - begin > most
        if full:
            buckets.append([])
        buckets[-1].append(place)
        full = False
    return buckets


def make_buckets(gradients: Sequence[Gradient], rule: Reduction, prefix: str, number: int) -> list[Bucket]:
    """Puts gradients, in the order of their arrival, into pools of their wire dtypes.

    number: the optimizer's, among those of its process set. Every rank does so with equal gradients.
    RuntimeError where there is no memory, ValueError where a gradient cannot be in a pool on this rank.
    """
    by_dtype: dict[torch.dtype, list[Gradient]] = {}
    for gradient in gradients:
        dtype = wire_dtype(gradient)
        if dtype is None:
            raise ValueError(f"{gradient.name} is of another kind than on other ranks")
        by_dtype.setdefault(dtype, []).append(gradient)
    config = _core.config()
    buckets: list[Bucket] = []
    for dtype, members in by_dtype.items():
        places, end = [], 0
        for gradient in members:
            parameter = gradient.parameter
            assert parameter is not None
            places.append(_Place(end, parameter.numel() * dtype.itemsize))
            end = -(-(end + places[-1].bytes) // _ALIGNMENT) * _ALIGNMENT
        key = 1 + number * len(_DTYPES) % _KEYS + _DTYPES.index(dtype)
        pool = _core.GradientPool(key, end, set_id(rule.process_set))
        given = iter(members)
        for cut in _cut(places, config.theta, config.fusion_threshold):
            inside = [next(given) for _ in cut]
            ends = [gradient.name.removeprefix(f"{prefix}.") for gradient in (inside[0], inside[-1])]
            name = f"{prefix}.bucket{len(buckets)}({'..'.join(dict.fromkeys(ends))})"
            buckets.append(Bucket(name, pool, dtype))
            for gradient, place in zip(inside, cut, strict=True):
                buckets[-1].place(gradient, place)
    return buckets
