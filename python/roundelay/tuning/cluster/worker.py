"""One rank of ``roundelay tune``. Rank 0 prints progress and the result as lines that ``job`` reads."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

import roundelay.torch as hvd
from roundelay import _core
from roundelay._internal import gpu
from roundelay.tuning.cluster import groups, measure
from roundelay.tuning.cluster.fit import SHARED_MEMORY
from roundelay.tuning.cluster.groups import Series
from roundelay.tuning.cluster.lines import MARK, Plan
from roundelay.tuning.file import ALGORITHMS, GPU, Cluster, Level

_OPERATIONS = [operation for operation, names in ALGORITHMS.items() if len(names) > 1]
_NAMES = list(dict.fromkeys(name for operation in _OPERATIONS for name in ALGORITHMS[operation]))


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
    """Prints a line for ``roundelay.tuning.cluster.job``, on rank 0."""
    if hvd.rank() == 0:
        print(MARK + json.dumps(content), flush=True)


def _call(cell: _Cell, process_set: hvd.ProcessSet, device: torch.device) -> Callable[[], object]:
    """Returns the cell's operation. `cell.bytes`: the size of a rank's vector; of allgather's result."""
    count = max(1, cell.bytes // 4)
    tensor = torch.zeros(count, device=device)  # sums stay as they are
    ranks = process_set.ranks
    name = "tune"
    if cell.operation == "allreduce":
        return lambda: hvd.allreduce_(tensor, name=name, op=hvd.Sum, process_set=process_set)
    if cell.operation == "broadcast":
        return lambda: hvd.broadcast_(tensor, ranks[0], name=name, process_set=process_set)
    if cell.operation == "reducescatter":
        return lambda: hvd.reducescatter(tensor, name=name, op=hvd.Sum, process_set=process_set)
    part = torch.zeros(max(1, count // len(ranks)), device=device)
    return lambda: hvd.allgather(part, name=name, process_set=process_set)


def _measure(
    cell: _Cell, process_set: hvd.ProcessSet | None, plan: Plan, device: torch.device
) -> dict[str, Any]:
    """Measures a cell. All ranks call it; those without a group only keep in step."""
    run = None
    if process_set is not None:
        run = measure.until_done(_call(cell, process_set, device), device)
    members = sum(len(group) for group in cell.series.groups)
    times = measure.times_of(run, plan.seconds_a_cell, members)
    return {
        "level": cell.series.level,
        "operation": cell.operation,
        "algorithm": cell.algorithm,
        "ranks": cell.series.ranks,
        "bytes": cell.bytes,
        **asdict(times),
    }


def _run_series(
    series: Series, algorithm: str, operations: list[str], plan: Plan, speaker: _Speaker
) -> list[dict[str, Any]]:
    """Measures the operations of one series. Sizes beyond one that takes too long are left out."""
    sets = [hvd.add_process_set(group) for group in series.groups if len(group) < hvd.size()]
    mine = next((one for one in sets if one.included()), None if sets else hvd.global_process_set)
    device = measure.own_gpu() if series.level == GPU else torch.device("cpu")
    found = []
    for operation in operations:
        what = f"{operation}, {algorithm}, {series.ranks} ranks in a {series.level}"
        for index, size in enumerate(plan.sizes):
            found.append(_measure(_Cell(series, operation, algorithm, size), mine, plan, device))
            too_long = found[-1]["seconds"] > plan.longest_seconds
            speaker.done(len(plan.sizes) - index if too_long else 1, what)
            if too_long:
                break
    for one in sets:
        hvd.remove_process_set(one)
    return found


def _series_on_gpus() -> list[Series]:
    """Returns the series over MPI on GPUs, if ROUNDELAY_GPU_FABRIC asks for them. Tries them first.

    Raises RuntimeError, the same on all ranks, if one has no GPU, or its MPI does not take a GPU's memory.
    """
    if os.environ.get("ROUNDELAY_GPU_FABRIC") != "mpi":
        return []
    seen = hvd.allgather(torch.tensor([gpu.devices() or 0]), name="tune.gpus").tolist()
    if 0 in seen:
        raise RuntimeError(f"ROUNDELAY_GPU_FABRIC=mpi, but rank {seen.index(0)} can use no GPU; unset it")
    hvd.allreduce_(torch.zeros(1, device=measure.own_gpu()), name="tune.try")
    return groups.on_gpus(hvd.size())


def main(words: list[str]) -> None:
    """Measures as the plan says. words: the plan, as Plan.to_word() made it."""
    plan = Plan.from_word(words[0])
    with measure.job():
        topology = [(name, tuple((tuple(ranks)) for _, ranks in parts)) for name, parts in _core.topology()]
        transports = _core.transports()
        try:
            on_gpus = _series_on_gpus()
        except RuntimeError as error:
            sys.exit(f"roundelay tune: error: {error}" if hvd.rank() == 0 else 1)
    fabric = transports["fabric"].rpartition("+")[2]
    if fabric == "shm":  # one node: the fabric that several would have
        fabric = "mpi" if transports["bootstrap"] == "mpi" else "tcp"
    inner = groups.inside(topology) if "shm" in transports["fabric"] else None
    # The medium, its variables, and what is measured over it by each algorithm.
    media = [({"FABRIC": fabric}, groups.between(topology)), ({}, on_gpus)]
    names = sum(len(ALGORITHMS[operation]) for operation in _OPERATIONS)
    cells = names * sum(len(series) for _, series in media) + (inner is not None)
    speaker = _Speaker(cells * len(plan.sizes) * plan.rounds)
    found: list[dict[str, Any]] = []
    for _ in range(plan.rounds):
        if inner is not None:
            with measure.job():
                found += _run_series(inner, SHARED_MEMORY, ["allreduce"], plan, speaker)
        for variables, series in media:
            for algorithm in _NAMES if series else []:
                with measure.job(**variables, ALGORITHM=algorithm, TUNING=""):
                    operations = [one for one in _OPERATIONS if algorithm in ALGORITHMS[one]]
                    for one in series:
                        found += _run_series(one, algorithm, operations, plan, speaker)
    with measure.job():
        levels = groups.levels(topology) + ((Level(GPU, hvd.size()),) if on_gpus else ())
        cluster = Cluster(len(topology[0][1]), hvd.size(), fabric, levels)
        say({"cluster": asdict(cluster), "senders": groups.senders(topology), "measured": found})


if __name__ == "__main__":
    main(sys.argv[1:])
