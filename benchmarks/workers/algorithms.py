"""One rank of `python -m benchmarks.algorithms`: steps with partial results of several sizes."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from benchmarks import measure
from roundelay import _core
from roundelay.algorithms import Algorithm, run

_WORK = 192  # rows of the square matrices that stand for the evaluation of a shard


class _Turn:
    """Steps with partial results of one size. Returns the median seconds of a step on this rank."""

    def __init__(self, size: int, spec: dict[str, Any], ranks: measure.Ranks) -> None:
        self._spec, self._ranks = spec, ranks
        matrix = torch.randn(_WORK, _WORK, generator=torch.Generator().manual_seed(0))
        self._ends: list[float] = []

        def evaluate(state: torch.Tensor, shard: range) -> torch.Tensor:
            product = matrix
            for _ in shard:
                product = product @ matrix
            return torch.full((size // 4,), float(product[0, 0]) * 0.0)

        def update(state: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
            self._ends.append(time.perf_counter())
            return state

        self._algorithm = Algorithm(torch.zeros(1), evaluate, update)

    def __call__(self) -> list[float]:
        self._ends.clear()
        self._ranks.meet()
        shards = self._spec["shards"]
        run(self._algorithm, range(shards * self._spec["products"]), self._spec["steps"], shards=shards)
        steps = [after - before for before, after in zip(self._ends, self._ends[1:], strict=False)]
        return [statistics.median(steps)]


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all sizes of the spec."""
    ranks = measure.Ranks(spec)
    turns: dict[int, measure.Turn] = {size: _Turn(size, spec, ranks) for size in spec["sizes"]}
    found = measure.take_turns(turns, spec["repetitions"])
    fabric = _core.transports()["fabric"] if ranks.size > 1 else ""
    ranks.leave()
    return {
        "seconds": {str(size): seconds for size, seconds in found.single().items()},
        "others": found.others,
        "fabric": fabric,
    }


if __name__ == "__main__":
    measure.worker(main)
