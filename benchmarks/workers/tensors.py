"""Gradients shaped like ResNet-50's, submitted one by one as backward computes them, until all are summed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from benchmarks import measure
from benchmarks.bare import floor
from benchmarks.contenders import Mpi
from benchmarks.exact import CheckedTurn, Sum
from benchmarks.shapes import resnet50

_BUCKET_BYTES = 25 << 20  # as DDP's
Way = Callable[[], object]


def _roundelay(tensors: Sequence[torch.Tensor]) -> Way:
    import roundelay.torch as hvd

    hvd.init()
    named = [(tensor, f"gradient.{index}") for index, tensor in enumerate(tensors)]

    def run() -> None:
        handles = [hvd.allreduce_async_(tensor, name=name, op=hvd.Sum) for tensor, name in named]
        for handle in handles:
            hvd.synchronize(handle)

    return run


def _gloo(tensors: Sequence[torch.Tensor]) -> Way:
    def run() -> None:
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()

    return run


def cut(tensors: Sequence[torch.Tensor], size: int) -> list[list[torch.Tensor]]:
    """Divide into buckets of at least `size` bytes, in order. The last one may be smaller."""
    buckets: list[list[torch.Tensor]] = [[]]
    filled = 0
    for tensor in tensors:
        if filled >= size:
            buckets.append([])
            filled = 0
        buckets[-1].append(tensor)
        filled += tensor.nbytes
    return buckets


def _gloo_buckets(tensors: Sequence[torch.Tensor]) -> Way:
    """Pack, sum and unpack. Packs the next bucket while one is under way."""
    buckets = []
    for members in cut(tensors, _BUCKET_BYTES):
        flat = torch.empty(sum(member.numel() for member in members))
        parts = flat.split([member.numel() for member in members])
        views = [part.view(member.shape) for part, member in zip(parts, members, strict=True)]
        buckets.append((flat, views, members))

    def run() -> None:
        works = []
        for flat, views, members in buckets:
            torch._foreach_copy_(views, members)
            works.append(dist.all_reduce(flat, async_op=True))
        for work, (_, views, members) in zip(works, buckets, strict=True):
            work.wait()
            torch._foreach_copy_(members, views)

    return run


def _mpi(tensors: Sequence[torch.Tensor]) -> Way:
    mpi = Mpi()
    calls = [mpi.prepare(tensor) for tensor in tensors]

    def run() -> None:
        for call in calls:
            call()

    return run


_WAYS = {"roundelay": _roundelay, "gloo": _gloo, "gloo in buckets": _gloo_buckets, "mpi": _mpi}


def _turn(name: str, shapes: Sequence[tuple[int, ...]], data: Sum, ranks: measure.Ranks) -> CheckedTurn:
    tensors = [torch.empty(shape) for shape in shapes]
    return CheckedTurn(name, tensors, _WAYS[name](tensors), data, ranks)


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all ways with the tensors of the spec: the last `tensors` of ResNet-50, which come first."""
    ranks = measure.Ranks(spec)
    shapes = resnet50()[::-1][: spec["tensors"]]
    largest = max(math.prod(shape) for shape in shapes)
    data = Sum(largest, torch.float32, ranks.rank, ranks.size)
    turns: dict[str, measure.Turn] = {}
    missing = {}
    for name in _WAYS:
        try:
            turns[name] = _turn(name, shapes, data, ranks)
        except ImportError as error:
            missing[name] = str(error)
    size = 4 * sum(math.prod(shape) for shape in shapes)
    with floor(size, spec, ranks) as bare:
        found = measure.take_turns({**turns, **bare}, spec["repetitions"])
    ranks.leave()
    return {
        "tensors": len(shapes),
        "bytes": size,
        "seconds": found.single(),
        "others": found.others,
        "missing": missing,
    }


if __name__ == "__main__":
    measure.worker(main)
