"""One rank of ``roundelay tune``. Rank 0 prints progress and the result as lines that ``job`` reads."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

import roundelay.torch as hvd
from roundelay import _core
from roundelay.tune import groups
from roundelay.tune.fit import SHARED_MEMORY
from roundelay.tune.groups import Series
from roundelay.tune.lines import MARK, Plan
from roundelay.tuning_file import ALGORITHMS, Cluster

_OPERATIONS = [operation for operation, names in ALGORITHMS.items() if len(names) > 1]
_NAMES = list(dict.fromkeys(name for operation in _OPERATIONS for name in ALGORITHMS[operation]))
_FEWEST, _MOST = 3, 200  # repetitions of a cell


@dataclass(frozen=True)
class _Cell:
    """One operation of one size, by one algorithm, in the groups of a series."""

    series: Series
    operation: str
    algorithm: str
    bytes: int


class _Speaker:
    """Prints the progress of the measurement, on rank 0."""

    def __init__(self, cells: int) -> None:
        self._cells, self._done = cells, 0

    def done(self, cells: int, what: str) -> None:
        self._done += cells
        say({"done": self._done, "cells": self._cells, "what": what})


def say(content: dict[str, Any]) -> None:
    """Prints a line for ``roundelay.tune.job``, on rank 0."""
    if hvd.rank() == 0:
        print(MARK + json.dumps(content), flush=True)


@contextmanager
def _job(**variables: str) -> Iterator[None]:
    """Surrounds a job (hvd.init() to hvd.shutdown()) with these ROUNDELAY_ variables."""
    names = {f"ROUNDELAY_{name}": value for name, value in variables.items()}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        hvd.init()
        yield
    finally:
        hvd.shutdown()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _nothing() -> None:
    """Stands for the operation on ranks that are in no group."""


def _call(cell: _Cell, process_set: hvd.ProcessSet) -> Callable[[], object]:
    """Returns the cell's operation. `cell.bytes`: the size of a rank's vector; of allgather's result."""
    count = max(1, cell.bytes // 4)
    tensor = torch.zeros(count)  # sums stay as they are
    ranks = process_set.ranks
    name = "tune"
    if cell.operation == "allreduce":
        return lambda: hvd.allreduce_(tensor, name=name, op=hvd.Sum, process_set=process_set)
    if cell.operation == "broadcast":
        return lambda: hvd.broadcast_(tensor, ranks[0], name=name, process_set=process_set)
    if cell.operation == "reducescatter":
        return lambda: hvd.reducescatter(tensor, name=name, op=hvd.Sum, process_set=process_set)
    part = torch.zeros(max(1, count // len(ranks)))
    return lambda: hvd.allgather(part, name=name, process_set=process_set)


def _of_all(value: float, how: Any) -> float:
    """Returns the largest, or the mean, of all ranks' values."""
    return float(hvd.allreduce(torch.tensor([value], dtype=torch.float64), name="tune.agree", op=how).item())


def _measure(cell: _Cell, process_set: hvd.ProcessSet | None, plan: Plan) -> dict[str, Any]:
    """Measures a cell. All ranks call it; those without a group only keep in step."""
    run = _call(cell, process_set) if process_set is not None else _nothing
    run()
    hvd.barrier()
    began = time.perf_counter()
    run()
    once = _of_all(time.perf_counter() - began, hvd.Max)
    repetitions = min(_MOST, max(_FEWEST, int(plan.seconds_a_cell / max(once, 1e-9))))
    seconds = []
    cpu = time.process_time()
    for _ in range(repetitions):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    cpu = (time.process_time() - cpu) / repetitions
    slowest = _of_all(statistics.median(seconds), hvd.Max)
    members = sum(len(group) for group in cell.series.groups)
    mean_cpu = _of_all(cpu if process_set is not None else 0.0, hvd.Sum) / members
    return {
        "level": cell.series.level,
        "operation": cell.operation,
        "algorithm": cell.algorithm,
        "ranks": cell.series.ranks,
        "bytes": cell.bytes,
        "seconds": slowest,
        "cpu_seconds": mean_cpu,
    }


def _run_series(
    series: Series, algorithm: str, operations: list[str], plan: Plan, speaker: _Speaker
) -> list[dict[str, Any]]:
    """Measures the operations of one series. Sizes beyond one that takes too long are left out."""
    sets = [hvd.add_process_set(group) for group in series.groups if len(group) < hvd.size()]
    mine = next((one for one in sets if one.included()), None if sets else hvd.global_process_set)
    found = []
    for operation in operations:
        what = f"{operation}, {algorithm}, {series.ranks} ranks in a {series.level}"
        for index, size in enumerate(plan.sizes):
            found.append(_measure(_Cell(series, operation, algorithm, size), mine, plan))
            too_long = found[-1]["seconds"] > plan.longest_seconds
            speaker.done(len(plan.sizes) - index if too_long else 1, what)
            if too_long:
                break
    for one in sets:
        hvd.remove_process_set(one)
    return found


def main(words: list[str]) -> None:
    """Measures as the plan says. words: the plan, as Plan.to_word() made it."""
    plan = Plan.from_word(words[0])
    with _job():
        topology = [(name, tuple((tuple(ranks)) for _, ranks in parts)) for name, parts in _core.topology()]
        transports = _core.transports()
    fabric = "mpi" if transports["bootstrap"] == "mpi" else "c10d"
    inner = groups.inside(topology) if "shm" in transports["fabric"] else None
    series = groups.between(topology)
    cells = sum(len(ALGORITHMS[operation]) for operation in _OPERATIONS) * len(series)
    speaker = _Speaker((cells + (inner is not None)) * len(plan.sizes) * plan.rounds)
    found: list[dict[str, Any]] = []
    for _ in range(plan.rounds):
        if inner is not None:
            with _job():
                found += _run_series(inner, SHARED_MEMORY, ["allreduce"], plan, speaker)
        for algorithm in _NAMES if series else []:
            with _job(FABRIC=fabric, ALGORITHM=algorithm, TUNING=""):
                operations = [one for one in _OPERATIONS if algorithm in ALGORITHMS[one]]
                for one in series:
                    found += _run_series(one, algorithm, operations, plan, speaker)
    with _job():
        size = hvd.size()
        cluster = Cluster(len(topology[0][1]), size, fabric, groups.levels(topology))
        say({"cluster": asdict(cluster), "measured": found})


if __name__ == "__main__":
    main(sys.argv[1:])
