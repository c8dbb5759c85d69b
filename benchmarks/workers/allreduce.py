"""One rank of `python -m benchmarks.allreduce`: blocking sums of one size, of all contenders and types."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks import measure
from benchmarks.bare import floor
from benchmarks.contenders import Contender, enter
from benchmarks.exact import CheckedTurn, Sum

_BUFFERS_BYTES = 8 << 20  # the tensors of one measurement together, unless a single tensor is larger
_MOST_CALLS = 20


def calls(size: int) -> int:
    """Return how many calls one measurement makes. Each has its own tensor, so that all can be checked."""
    return max(1, min(_MOST_CALLS, _BUFFERS_BYTES // size))


class _Turn(CheckedTurn):
    """One contender's measurements of one size and type. Returns the seconds per call."""

    def __init__(self, contender: Contender, size: int, dtype: torch.dtype, data: Sum, ranks: measure.Ranks):
        count = max(1, size // dtype.itemsize)
        tensors = [contender.make(count, dtype) for _ in range(calls(size))]
        self._calls = [contender.prepare(tensor) for tensor in tensors]
        super().__init__(contender.name, tensors, self._call_all, data, ranks)

    def __call__(self) -> list[float]:
        return [seconds / len(self._calls) for seconds in super().__call__()]

    def _call_all(self) -> None:
        for call in self._calls:
            call()


def _measure(
    size: int, spec: dict[str, Any], contenders: list[Contender], ranks: measure.Ranks
) -> list[dict[str, Any]]:
    """Measure all types of a size in one run of turns."""
    turns: dict[tuple[str | None, str], measure.Turn] = {}
    cells = []
    for name in spec["dtypes"]:
        dtype = getattr(torch, name)
        data = Sum(max(1, size // dtype.itemsize), dtype, ranks.rank, ranks.size)
        why_not = {contender.name: contender.why_not(dtype) for contender in contenders}
        for contender in contenders:
            if why_not[contender.name] is None:
                turns[name, contender.name] = _Turn(contender, size, dtype, data, ranks)
        empty = {who: why for who, why in why_not.items() if why is not None}
        cells.append({"dtype": name, "bytes": size, "seconds": {}, "empty": empty})
    with floor(size, spec, ranks, calls(size)) as bare:
        turns |= {(None, name): turn for name, turn in bare.items()}  # compared with every type
        found = measure.take_turns(turns, spec["repetitions"])
    for cell in cells:
        cell["others"] = found.others
        for (dtype_name, who), seconds in found.single().items():
            if dtype_name in (cell["dtype"], None):
                cell["seconds"][who] = seconds
    return cells


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all sizes and types of the spec."""
    ranks = measure.Ranks(spec)
    contenders, missing = enter()
    cells = [cell for size in spec["sizes"] for cell in _measure(size, spec, contenders, ranks)]
    ranks.leave()
    cells.sort(key=lambda cell: spec["dtypes"].index(cell["dtype"]))  # by type, then by size, for readers
    for cell in cells:
        cell["empty"].update(missing)
    return {"cells": cells}


if __name__ == "__main__":
    measure.worker(main)
