"""What a rank measures with: the other ranks, turns, times and their sums."""

from __future__ import annotations

import json
import math
import mmap
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from benchmarks.launch import GATE, GATE_STRIDE, own_rank

Key = TypeVar("Key")
Turn = Callable[[], list[float]]  # makes measurements, as many on each rank; their seconds on this rank


class Ranks:
    """All ranks, in a Gloo group and at a gate. Made and used alike by all of them."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.rank, self.size = own_rank(), int(spec["ranks"])
        torch.set_num_threads(1)
        folder = Path(spec["folder"])
        store = f"file://{folder / 'gloo'}"
        dist.init_process_group("gloo", init_method=store, rank=self.rank, world_size=self.size)
        with (folder / GATE).open("r+b") as file:
            self._came = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        self._meetings = 0

    def meet(self) -> None:
        """Return when all ranks have called this, a microsecond apart where each has a core.

        Gloo's barrier lets them go tens of microseconds apart: as much as what is measured.
        """
        dist.barrier()  # so that they sleep until the last one is near
        self._meetings += 1
        stride = GATE_STRIDE // self._came.itemsize
        self._came[self.rank * stride] = self._meetings
        for rank in range(self.size):
            while self._came[rank * stride] < self._meetings:
                os.sched_yield()

    def rest(self) -> None:
        """Sleep until all ranks have called this."""
        dist.barrier()

    def leave(self) -> None:
        """End the Gloo group."""
        dist.barrier()
        dist.destroy_process_group()


def worker(main: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Be one rank of `launch.run_ranks`: calls `main` with the spec, keeps what it returns."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    found = main(spec)
    (Path(spec["folder"]) / f"result{own_rank()}.json").write_text(json.dumps(found))


def take_turns(turns: Mapping[Key, Turn], repetitions: int, warmups: int = 1) -> dict[Key, list[float]]:
    """Run each in every repetition, beginning with another one each time, so that drift hits all alike.

    Args:
        turns: what measures, once or several times.
        repetitions: how many turns of each count.
        warmups: how many before do not.

    Returns:
        By the same keys, the seconds of each measurement: of the slowest rank.

    """
    own = in_turn(turns, repetitions, warmups)
    return {name: _slowest(seconds) for name, seconds in own.items()}


def in_turn(turns: Mapping[Key, Turn], repetitions: int, warmups: int = 0) -> dict[Key, list[float]]:
    """As take_turns, but by this process alone: what it measured itself."""
    names = list(turns)
    own: dict[Key, list[float]] = {name: [] for name in names}
    for repetition in range(warmups + repetitions):
        first = repetition % len(names)
        for name in names[first:] + names[:first]:
            seconds = turns[name]()
            if repetition >= warmups:
                own[name] += seconds
    return own


def _slowest(own: list[float]) -> list[float]:
    times = torch.tensor(own, dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    slowest: list[float] = times.tolist()
    return slowest


def summary(seconds: list[float]) -> dict[str, float]:
    """Take the median, the quartiles, the 99th percentile and the least, in seconds."""
    quarters = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else [seconds[0]] * 3
    return {
        "median": statistics.median(seconds),
        "low": quarters[0],
        "high": quarters[2],
        "p99": sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1],
        "least": min(seconds),
    }


def timed(run: Callable[[], object]) -> float:
    """Tell how many seconds a call takes."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
