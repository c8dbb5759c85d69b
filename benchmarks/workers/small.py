"""Blocking sums of a few bytes: in a row, and each after other work. Times of single calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks import measure
from benchmarks.bare import floor
from benchmarks.contenders import Contender, enter
from benchmarks.exact import Sum

_OTHER_WORK_BYTES = 4 << 20  # more than a core's own caches hold
_DTYPE = torch.float32


class _Calls:
    """Some calls of one contender, each with a tensor of its own."""

    def __init__(
        self,
        contender: Contender,
        data: Sum,
        count: int,
        calls: int,
        ranks: measure.Ranks,
        before: Callable[[], object],
    ) -> None:
        self._name, self._data, self._ranks, self._before = contender.name, data, ranks, before
        self._tensors = [contender.make(count, _DTYPE) for _ in range(calls)]
        self._calls = [contender.prepare(tensor) for tensor in self._tensors]

    def __call__(self) -> list[float]:
        for tensor in self._tensors:
            self._data.fill(tensor)
        self._before()
        self._ranks.meet()
        seconds = [measure.timed(call) for call in self._calls]
        for tensor in self._tensors:
            self._data.check(tensor, self._name)
        return seconds


def _measure(
    size: int, spec: dict[str, Any], contenders: list[Contender], ranks: measure.Ranks
) -> dict[str, Any]:
    count = size // _DTYPE.itemsize
    data = Sum(count, _DTYPE, ranks.rank, ranks.size)
    other = torch.zeros(_OTHER_WORK_BYTES // _DTYPE.itemsize)
    rows = {c.name: _Calls(c, data, count, spec["calls"], ranks, lambda: None) for c in contenders}
    single = {c.name: _Calls(c, data, count, 1, ranks, lambda: other.add_(1)) for c in contenders}
    with floor(size, spec, ranks, spec["calls"]) as bare:
        in_a_row = measure.take_turns({**rows, **bare}, spec["repetitions"])
    with floor(size, spec, ranks) as bare:
        after_work = measure.take_turns({**single, **bare}, spec["calls"])
    return {
        "bytes": size,
        "in a row": {"calls": in_a_row.seconds, "others": in_a_row.others},
        "after other work": {"calls": after_work.seconds, "others": after_work.others},
    }


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all sizes of the spec."""
    ranks = measure.Ranks(spec)
    contenders, missing = enter()
    contenders = [contender for contender in contenders if contender.name != "pool"]
    cells = [_measure(size, spec, contenders, ranks) for size in spec["sizes"]]
    ranks.leave()
    return {"cells": cells, "missing": missing}


if __name__ == "__main__":
    measure.worker(main)
