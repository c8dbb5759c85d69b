"""One rank of `python -m benchmarks.allreduce`."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from benchmarks import measure
from benchmarks.contenders import Contender, enter

_BUFFERS_BYTES = 8 << 20  # that one measurement goes over, if a single tensor is not larger already
_MOST_CALLS = 20


def calls(size: int) -> int:
    """Tell how many calls one measurement makes: each on a tensor of its own, so that each is checked."""
    return max(1, min(_MOST_CALLS, _BUFFERS_BYTES // size))


def pattern(count: int, dtype: torch.dtype, offset: int) -> torch.Tensor:
    """Make `count` small integers, whose sums over few ranks are exact in every type."""
    return (torch.arange(count) % 7 + offset).to(dtype)


class _Turn:
    """One contender's measurements of one size and type."""

    def __init__(self, contender: Contender, size: int, dtype: torch.dtype, rank: int, ranks: int) -> None:
        count = max(1, size // dtype.itemsize)
        self._name = contender.name
        self._input = pattern(count, dtype, rank)
        self._expected = pattern(count, torch.float64, 0).mul_(ranks).add_(ranks * (ranks - 1) // 2).to(dtype)
        self._tensors = [contender.make(count, dtype) for _ in range(calls(size))]
        self._calls = [contender.prepare(tensor) for tensor in self._tensors]

    def __call__(self) -> float:
        for tensor in self._tensors:
            tensor.copy_(self._input)
        dist.barrier()
        seconds = measure.timed(self._run)
        if not all(torch.equal(tensor, self._expected) for tensor in self._tensors):
            raise RuntimeError(f"{self._name}: wrong sum of {self._input.numel()} {self._input.dtype}")
        return seconds / len(self._calls)

    def _run(self) -> None:
        for call in self._calls:
            call()


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all sizes and types of the spec."""
    rank = measure.join(spec)
    contenders, missing = enter()
    cells = []
    for dtype_name in spec["dtypes"]:
        dtype = getattr(torch, dtype_name)
        for size in spec["sizes"]:
            able = [c for c in contenders if c.why_not(dtype) is None]
            turns = {c.name: _Turn(c, size, dtype, rank, spec["ranks"]) for c in able}
            times = measure.take_turns(turns, spec["repetitions"])
            reasons = {c.name: c.why_not(dtype) for c in contenders if c not in able}
            cells.append(
                {
                    "dtype": dtype_name,
                    "bytes": size,
                    "seconds": {name: measure.summary(own) for name, own in times.items()},
                    "empty": {**missing, **reasons},
                }
            )
    dist.barrier()
    dist.destroy_process_group()
    return {"cells": cells}


if __name__ == "__main__":
    measure.worker(main)
