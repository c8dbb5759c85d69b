"""Gradient pools: an optimizer's gradients of one device and dtype in one piece of memory.

Gradients lie in the order in which backward brings them. The pool is cut into buckets
(roundelay/tuning/buckets.py), and cut again if another size is better. The last gradient that becomes ready
submits its bucket, which is reduced in place: nothing is packed, and within a node the ranks read each
other's buckets in shared memory.
``.grad`` is an entry of the pool. If autograd has made a new tensor (after zero_grad()), the hook copies it
in; if the entry was kept, autograd adds to it in place. On a GPU all work is enqueued in the hook's current
stream.

Where gradients travel in a half type, ``.grad`` is an entry of a second memory of the parameters' type. A
gradient is cast once, into the pool; a bucket's results are cast back in one pass.

Source: lazy allreduce on a gradient pool, GradientFlow (arXiv 1902.06855), section 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import torch

from roundelay import _core
from roundelay._internal import gpu
from roundelay.torch._internal.gradients.gradient import Gradient, Reduction
from roundelay.torch._internal.gradients.region_keys import JobKeys
from roundelay.torch._internal.measure import count
from roundelay.torch._internal.operations import Sum
from roundelay.torch.compression import Compression
from roundelay.torch.process_sets import set_id
from roundelay.tuning.buckets import Cuts, Extent, cut, out_of_place

_ALIGNMENT = 64  # bytes
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)  # of parameters, and on the wire

job_keys = JobKeys(2 * len(_DTYPES))  # a block has a key for each dtype on the CPU, and on a GPU


def wire_dtype(gradient: Gradient) -> torch.dtype | None:
    """Returns the type that a gradient has in a pool; None if it cannot be in one."""
    rule, parameter = gradient.rule, gradient.core.parameter
    known = rule.compression in (Compression.none, Compression.fp16, Compression.bf16)
    if parameter is None or not known or not gpu.serves(parameter.device):
        return None
    if parameter.layout != torch.strided or parameter.numel() == 0:
        return None
    if getattr(parameter, "grad_dtype", parameter.dtype) != parameter.dtype:  # torch 2.13 lets users choose
        return None
    sent, _ = rule.compression.compress(parameter.detach().new_empty(0))
    return sent.dtype if sent.dtype in _DTYPES else None


class PoolBucket:
    """A range of a pool. ``core`` reduces its gradients, in the pool if it can (csrc/gradients/bucket.h)."""

    __slots__ = ("core", "members", "pool")

    def __init__(self, name: str, pool: _Pool, members: Mapping[Gradient, int], rule: _core.Rule) -> None:
        """members: the gradients, with the numbers of their entries in the pool."""
        self.core = _core.Bucket(name, pool.memory, rule)
        self.pool = pool
        self.members = tuple(members)
        for gradient, entry in members.items():
            self.core.add(gradient.core, entry)

    def ranges(self) -> tuple[range, ...]:
        """Returns the elements of each gradient, counted from the bucket's first one."""
        return tuple(range(first, first + count) for first, count in self.core.slices)


class _Pool:
    """The gradients of one device and dtype, and their memory.

    index: among the optimizer's pools. dtype: the type that travels. result_dtype: that of the results.
    number: the process set's.
    """

    def __init__(
        self,
        index: int,
        key: int,
        device: torch.device,
        dtype: torch.dtype,
        result_dtype: torch.dtype,
        gradients: Sequence[Gradient],
        number: int,
    ) -> None:
        self.index = index
        self.device = device
        self.dtype = dtype
        self.entries: dict[Gradient, int] = {}  # each gradient's number in the memory, in the order of these
        self._elements = {gradient: _elements(gradient) for gradient in gradients}
        self.size = sum(_rounded(elements * dtype.itemsize) for elements in self._elements.values())
        elements = self.size // dtype.itemsize
        results = None if result_dtype == dtype else (result_dtype, elements * result_dtype.itemsize)
        self.memory = _memory(key, self.size, number, device, results)
        self.arrange(gradients)

    def arrange(self, gradients: Sequence[Gradient]) -> None:
        """Lays them out in this order. Earlier tensors that somebody holds keep their values."""
        self.memory.clear()
        self.entries.clear()
        begin = 0
        for gradient in gradients:
            elements = self._elements[gradient]
            like = gradient.core.parameter
            if like is None or like.numel() != elements:  # the parameter is gone or replaced: keep its place
                like = torch.empty(elements, device=self.device)
            end = begin + elements * self.dtype.itemsize
            self.entries[gradient] = self.memory.add(begin, like, self.dtype)
            begin = _rounded(end)

    def extents(self) -> list[tuple[int, int]]:
        """Returns where each gradient begins and ends, in bytes."""
        return [self.memory.place(entry) for entry in self.entries.values()]


class Pools:
    """All gradients of an optimizer that can lie in pools, one for each device and dtype of parameters.

    gradients: in the order of their arrival, equal on all ranks. prefix: that of the optimizer's names. key:
    the first one of the optimizer's block of job_keys. RuntimeError if there is no memory, ValueError if a
    gradient cannot be in a pool on this rank.
    """

    def __init__(self, gradients: Sequence[Gradient], rule: Reduction, prefix: str, key: int) -> None:
        self._prefix = prefix
        self._rule = rule
        by_kind: dict[tuple[torch.device, torch.dtype, torch.dtype], list[Gradient]] = {}
        for gradient in gradients:
            dtype, parameter = wire_dtype(gradient), gradient.core.parameter
            if dtype is None or parameter is None:
                raise ValueError(f"{gradient.name} is of another kind than on other ranks")
            by_kind.setdefault((parameter.device, dtype, parameter.dtype), []).append(gradient)
        self._pools: list[_Pool] = []
        for (device, dtype, own), members in by_kind.items():
            kind = _DTYPES.index(own) + len(_DTYPES) * (device.type != "cpu")
            number = set_id(rule.process_set)
            self._pools.append(_Pool(len(self._pools), key + kind, device, dtype, own, members, number))
        # The cost model holds for the CPU only.
        self.measurable = all(pool.device.type == "cpu" for pool in self._pools)
        self._counted: Counter[str] = Counter()
        self._steps = 0  # in which buckets were submitted

    def gradients(self) -> list[Gradient]:
        """Returns all gradients, in the order of the pools."""
        return [gradient for pool in self._pools for gradient in pool.entries]

    def largest(self) -> int:
        """Returns the number of bytes of the largest pool."""
        return max(pool.size for pool in self._pools)

    def extents(self, ready: Mapping[Gradient, float]) -> list[list[Extent]]:
        """Returns each pool's extents. ready: when gradients come, in seconds; missing ones come last."""
        last = max(ready.values(), default=0.0)
        return [
            [
                Extent(begin, end, ready.get(gradient, last))
                for gradient, (begin, end) in zip(pool.entries, pool.extents(), strict=True)
            ]
            for pool in self._pools
        ]

    def arrange(self, gradients: Sequence[Gradient]) -> None:
        """Lays out the same gradients in another order. Existing buckets must not be used any more."""
        for pool in self._pools:
            pool.arrange([gradient for gradient in gradients if gradient in pool.entries])

    def in_order(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        """Returns what gradients() would return after arrange(gradients)."""
        return [gradient for pool in self._pools for gradient in gradients if gradient in pool.entries]

    def cut(self, cuts: Cuts, most: int) -> list[PoolBucket]:
        """Cuts the pools into buckets, whose names have number, first and last gradient. most: bytes."""
        buckets: list[PoolBucket] = []
        rule = self._rule.for_core()
        for pool in self._pools:
            gradients = list(pool.entries)
            for indices in cut([Extent(*extent) for extent in pool.extents()], cuts, most):
                members = {gradients[index]: pool.entries[gradients[index]] for index in indices}
                ends = [gradients[i].name.removeprefix(f"{self._prefix}.") for i in (indices[0], indices[-1])]
                name = f"{self._prefix}.bucket{len(buckets)}({'..'.join(dict.fromkeys(ends))})"
                buckets.append(PoolBucket(name, pool, members, rule))
        return buckets

    def step_over(self) -> bool:
        """Ends a step. Returns whether buckets were submitted in it."""
        submitted = sum(pool.memory.take_submissions() for pool in self._pools) > 0
        if submitted:
            # The gradients from before the pool are gone. In later steps small pieces that live on pin the
            # heap above gradients on their way into the pool, until each size has a hole: so trim again, but
            # ever more seldom.
            self._steps += 1
            if self._steps.bit_count() == 1:
                for pool in self._pools:
                    pool.memory.trim()
        self._count_work()
        return submitted

    def _count_work(self) -> None:
        work: Counter[str] = Counter()
        for pool in self._pools:
            work.update(pool.memory.counters)
        for counter, number in work.items():
            count(counter, number - self._counted[counter])
        self._counted = work

    def out_of_place(self, buckets: Sequence[PoolBucket]) -> bool:
        """Returns whether a bucket was submitted before one that lies earlier in its pool, or without it."""
        for pool in self._pools:
            if out_of_place([bucket.core.number_in_step for bucket in buckets if bucket.pool is pool]):
                return True
        return False

    def trial(self) -> tuple[Callable[[int], int], torch.Tensor]:
        """Returns the first two arguments of calibration.calibrate(), for the largest pool."""
        pool = max(self._pools, key=lambda pool: pool.size)
        word = pool.memory.fill(next(iter(pool.entries.values())), None)

        def start(size: int) -> int:
            name = f"{self._prefix}.calibration{size}"
            return pool.memory.allreduce_async(size, pool.dtype, name, Sum)

        return start, word.as_strided((1,), (1,))


def _memory(
    key: int, size: int, number: int, device: torch.device, results: tuple[torch.dtype, int] | None
) -> _core.GradientPool:
    """Allocates a pool's memory. If a GPU has too little, torch frees unused memory first."""
    try:
        return _core.GradientPool(key, size, number, device, results)
    except RuntimeError:
        if device.type == "cpu":
            raise
    torch.get_device_module(device).empty_cache()
    return _core.GradientPool(key, size, number, device, results)


def _elements(gradient: Gradient) -> int:
    parameter = gradient.core.parameter
    assert parameter is not None
    return parameter.numel()


def _rounded(bytes_: int) -> int:
    return -(-bytes_ // _ALIGNMENT) * _ALIGNMENT
