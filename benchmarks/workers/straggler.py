"""The CPU time of ranks that wait in a blocking sum for a late rank."""

from __future__ import annotations

import time
from typing import Any

import torch

from benchmarks import measure
from benchmarks.contenders import Contender, enter
from benchmarks.exact import Sum

_AFTERWARDS_S = 0.005  # a thread of the library may still poll during this time, which counts too
_DTYPE = torch.float32
_COUNT = 256


class _Wait:
    """Measures the CPU time of a rank's process, with all its threads, until the sum is there."""

    def __init__(self, contender: Contender, late_s: float, ranks: measure.Ranks) -> None:
        self._late_s, self._ranks = late_s, ranks
        self._is_late = ranks.rank == ranks.size - 1
        self._data = Sum(_COUNT, _DTYPE, ranks.rank, ranks.size)
        self._name = contender.name
        self._tensor = contender.make(_COUNT, _DTYPE)
        self._call = contender.prepare(self._tensor)

    def __call__(self) -> list[float]:
        self._data.fill(self._tensor)
        self._ranks.meet()
        if self._is_late:
            time.sleep(self._late_s)
        begin = time.process_time()
        self._call()
        time.sleep(_AFTERWARDS_S)
        burnt = time.process_time() - begin
        self._data.check(self._tensor, self._name)
        return [0.0 if self._is_late else burnt]


class _Sleep:
    """Measures the CPU time of the same process during a sleep of the same length."""

    def __init__(self, late_s: float, ranks: measure.Ranks) -> None:
        self._late_s, self._ranks = late_s, ranks

    def __call__(self) -> list[float]:
        self._ranks.meet()
        begin = time.process_time()
        time.sleep(self._late_s + _AFTERWARDS_S)
        return [time.process_time() - begin]


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all contenders, and a sleep."""
    ranks = measure.Ranks(spec)
    contenders, missing = enter()
    late_s = spec["late_s"]
    turns: dict[str, measure.Turn] = {c.name: _Wait(c, late_s, ranks) for c in contenders}
    turns["sleep"] = _Sleep(late_s, ranks)
    found = measure.take_turns(turns, spec["repetitions"])
    ranks.leave()
    return {"cpu": found.single(), "others": found.others, "missing": missing}


if __name__ == "__main__":
    measure.worker(main)
