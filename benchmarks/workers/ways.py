"""Operations by several ways, each chosen by variables that init() reads; beside TCP streams over uplinks.

`python -m benchmarks.levels`, `benchmarks.collectives` and the row `algorithms` of the table use it.
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
from benchmarks.workers.operations import ALLREDUCE, OPERATIONS
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


_Item = tuple[str, int]  # an operation, and its bytes


def _items(spec: Mapping[str, Any]) -> list[_Item]:
    return [(operation, size) for operation in spec["operations"] for size in spec["sizes"]]


class _Way(ABC):
    """Measures all items one way. Each turn joins the job anew, as the way is chosen by variables."""

    def __init__(self, spec: Mapping[str, Any], ranks: measure.Ranks) -> None:
        self._items = _items(spec)
        self._uplinks = [Path(path) for path in spec["uplinks"]]
        self._ranks = ranks
        self._calls = dict.fromkeys(self._items, 1)
        self.sent: dict[_Item, list[float]] = {item: [] for item in self._items}
        self.cpu: dict[_Item, list[float]] = {item: [] for item in self._items}

    @abstractmethod
    def __call__(self) -> list[float]:
        """Measure each item; return the seconds."""

    def _measure(self, item: _Item, run: Callable[[], object]) -> float:
        """Return the seconds of one call; keep its CPU time on this rank, and the bytes over an uplink."""
        for _ in range(_WARMUPS):
            once = measure.timed(run)
        if self._calls[item] == 1:
            self._calls[item] = _agreed(max(1, int(_CALLS_S / once)))
        calls = self._calls[item]
        self._ranks.meet()
        before = [int(path.read_text()) for path in self._uplinks]
        self._ranks.meet()
        cpu = time.process_time()
        seconds = measure.timed(lambda: [run() for _ in range(calls)]) / calls
        self.cpu[item].append((time.process_time() - cpu) / calls)
        self._ranks.meet()
        sent = [int(path.read_text()) - old for path, old in zip(self._uplinks, before, strict=True)]
        self.sent[item].append(max(sent, default=0) / calls)
        return seconds


class _Operations(_Way):
    """Runs operations whose results are known."""

    def __init__(
        self, name: str, variables: Mapping[str, str], spec: Mapping[str, Any], ranks: measure.Ranks
    ) -> None:
        super().__init__(spec, ranks)
        self._name, self._variables = name, variables

    def __call__(self) -> list[float]:
        seconds = []
        with _variables(self._variables):
            hvd.init()
        try:
            for item in self._items:
                kind, size = item
                operation = OPERATIONS[kind](size, self._ranks)
                operation.check(self._name)
                seconds.append(self._measure(item, operation.run))
        finally:
            hvd.shutdown()
        return seconds


class _Streams(_Way):
    """Exchanges as many bytes between the racks as must cross, half of them from each node."""

    def __init__(self, spec: Mapping[str, Any], ranks: measure.Ranks) -> None:
        super().__init__(spec, ranks)
        self._stream = _connect(spec["addresses"], ranks.rank, ranks.size)

    def __call__(self) -> list[float]:
        return [self._measure(item, partial(self._exchange, item[1] // 2)) for item in self._items]

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


def _of_all(own: list[float], op: Any) -> list[float]:
    together = torch.tensor(own, dtype=torch.float64)
    dist.all_reduce(together, op=op)
    values: list[float] = together.tolist()
    return values


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all ways.

    The spec's `addresses`: of nodes, half of them in each rack; none: no streams. `uplinks`: counters of
    bytes; the one that counts most is kept. `operations`: default allreduce.
    """
    spec = {"operations": [ALLREDUCE], **spec}
    ranks = measure.Ranks(spec)
    turns: dict[str, _Way] = {
        name: _Operations(name, variables, spec, ranks) for name, variables in spec["ways"].items()
    }
    if spec["addresses"]:
        turns[STREAM] = _Streams(spec, ranks)
    found = measure.take_turns(dict[str, measure.Turn](turns), spec["repetitions"])
    kept = -spec["repetitions"]
    sum_of, most = dist.ReduceOp.SUM, dist.ReduceOp.MAX
    cells = [
        {
            "operation": item[0],
            "bytes": item[1],
            "seconds": {name: [one[index] for one in found.seconds[name]] for name in turns},
            "others": found.others,
            "sent": {
                name: statistics.median(_of_all(turn.sent[item][kept:], most)) for name, turn in turns.items()
            },
            "cpu": {name: _of_all(turn.cpu[item][kept:], sum_of) for name, turn in turns.items()},
        }
        for index, item in enumerate(_items(spec))
    ]
    ranks.leave()
    return {"cells": cells}


if __name__ == "__main__":
    measure.worker(main)
