"""Sums by several ways, each chosen by variables that init() reads; beside plain TCP streams over uplinks.

`python -m benchmarks.levels` and the row `algorithms` of the table use it.
"""

from __future__ import annotations

import os
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.contenders import Roundelay
from benchmarks.exact import Sum
from tests.rig.stream import Stream

STREAM = "streams"
_PORT = 7078
_WARMUPS = 1
_CALLS_S = 0.05  # small sizes are summed so often that a measurement takes about this long


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]


class _Way(ABC):
    """Measures all sizes one way. Each turn joins the job anew, as the way is chosen by variables."""

    def __init__(self, spec: Mapping[str, Any], ranks: measure.Ranks) -> None:
        self._sizes: list[int] = spec["sizes"]
        self._uplinks = [Path(path) for path in spec["uplinks"]]
        self._ranks = ranks
        self._calls = dict.fromkeys(self._sizes, 1)
        self.sent: dict[int, list[float]] = {size: [] for size in self._sizes}
        self.cpu: dict[int, list[float]] = {size: [] for size in self._sizes}

    @abstractmethod
    def __call__(self) -> list[float]:
        """Measure each size; return the seconds."""

    def _measure(self, size: int, run: Callable[[], object]) -> float:
        """Return the seconds of one call; keep its CPU time on this rank, and the bytes over an uplink."""
        for _ in range(_WARMUPS):
            once = measure.timed(run)
        if self._calls[size] == 1:
            self._calls[size] = _agreed(max(1, int(_CALLS_S / once)))
        calls = self._calls[size]
        self._ranks.meet()
        before = [int(path.read_text()) for path in self._uplinks]
        self._ranks.meet()
        cpu = time.process_time()
        seconds = measure.timed(lambda: [run() for _ in range(calls)]) / calls
        self.cpu[size].append((time.process_time() - cpu) / calls)
        self._ranks.meet()
        sent = [int(path.read_text()) - old for path, old in zip(self._uplinks, before, strict=True)]
        self.sent[size].append(max(sent, default=0) / calls)
        return seconds


class _Allreduce(_Way):
    """Sums a tensor whose sum is known."""

    def __init__(
        self, name: str, variables: Mapping[str, str], spec: Mapping[str, Any], ranks: measure.Ranks
    ) -> None:
        super().__init__(spec, ranks)
        self._name, self._variables = name, variables

    def __call__(self) -> list[float]:
        seconds = []
        with _variables(self._variables):
            contender = Roundelay()
        try:
            for size in self._sizes:
                data = Sum(size // 4, torch.float32, self._ranks.rank, self._ranks.size)
                tensor = torch.empty(size // 4)
                run = contender.prepare(tensor)
                data.fill(tensor)
                run()
                data.check(tensor, self._name)
                tensor.zero_()  # so that any number of sums stays exact
                seconds.append(self._measure(size, run))
        finally:
            hvd.shutdown()
        return seconds


class _Streams(_Way):
    """Exchanges as many bytes between the racks as must cross, half of them from each node."""

    def __init__(self, spec: Mapping[str, Any], ranks: measure.Ranks) -> None:
        super().__init__(spec, ranks)
        self._stream = _connect(spec["addresses"], ranks.rank, ranks.size)

    def __call__(self) -> list[float]:
        return [self._measure(size, partial(self._exchange, size // 2)) for size in self._sizes]

    def _exchange(self, size: int) -> None:
        if self._stream is not None:
            self._stream.exchange(size)


def _agreed(number: int) -> int:
    least = torch.tensor([number])
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    return int(least.item())


def _connect(addresses: list[str], rank: int, ranks: int) -> Stream | None:
    """Connect the first rank of each node of one rack with that of a node of the other."""
    per_node = ranks // len(addresses)
    node, half = rank // per_node, len(addresses) // 2
    if rank % per_node != 0:
        return None
    if node < half:
        return Stream.listen(addresses[node], _PORT)
    return Stream.connect(addresses[node - half], _PORT)


def _cpu_of_all(own: list[float]) -> list[float]:
    total = torch.tensor(own, dtype=torch.float64)
    dist.all_reduce(total)
    seconds: list[float] = total.tolist()
    return seconds


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all ways. The spec's `addresses`: of nodes, half of them in each rack; none: no streams."""
    ranks = measure.Ranks(spec)
    turns: dict[str, _Way] = {
        name: _Allreduce(name, variables, spec, ranks) for name, variables in spec["ways"].items()
    }
    if spec["addresses"]:
        turns[STREAM] = _Streams(spec, ranks)
    found = measure.take_turns(dict[str, measure.Turn](turns), spec["repetitions"])
    kept = -spec["repetitions"]
    cpu = {
        name: {size: _cpu_of_all(one[kept:]) for size, one in turn.cpu.items()}
        for name, turn in turns.items()
    }
    ranks.leave()
    cells = [
        {
            "bytes": size,
            "seconds": {name: [one[index] for one in found.seconds[name]] for name in turns},
            "others": found.others,
            "sent": {name: statistics.median(turn.sent[size][kept:]) for name, turn in turns.items()},
            "cpu": {name: cpu[name][size] for name in turns},
        }
        for index, size in enumerate(spec["sizes"])
    ]
    return {"cells": cells}


if __name__ == "__main__":
    measure.worker(main)
