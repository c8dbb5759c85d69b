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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist

from benchmarks.launch import GATE, GATE_STRIDE, own_rank
from benchmarks.quiet import Watch, share_of_others

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


@dataclass(frozen=True)
class Turns(Generic[Key]):
    """What was measured: by key and repetition, the seconds of each measurement.

    `others` has, by repetition, the most that other processes had of the machine in one of its turns: 0 to 1.
    """

    seconds: Mapping[Key, list[list[float]]]
    others: list[float]

    def single(self) -> dict[Key, list[float]]:
        """Tell the seconds by repetition, of turns that measure once."""
        return {name: [seconds for (seconds,) in all_] for name, all_ in self.seconds.items()}


def take_turns(turns: Mapping[Key, Turn], repetitions: int, warmups: int = 1) -> Turns[Key]:
    """Run each in every repetition, beginning with another one each time, so that drift hits all alike.

    Args:
        turns: what measures, once or several times.
        repetitions: how many turns of each count.
        warmups: how many before do not.

    Returns:
        Of each measurement, the seconds of the slowest rank; of others, what the rank saw that saw most.

    """
    own = _in_turn(turns, repetitions, warmups, Watch(_is_of_the_ranks()))
    seconds = {name: _most(all_) for name, all_ in own.seconds.items()}
    return Turns(seconds, *_most([own.others]))


def in_turn(turns: Mapping[Key, Turn], repetitions: int, warmups: int = 0) -> Turns[Key]:
    """As take_turns, but by this process alone, with children that it waits for: what it measured itself."""
    return _in_turn(turns, repetitions, warmups, Watch(os.getpid().__eq__))


def _in_turn(turns: Mapping[Key, Turn], repetitions: int, warmups: int, watch: Watch) -> Turns[Key]:
    names, cores = list(turns), os.cpu_count() or 1
    own: dict[Key, list[list[float]]] = {name: [] for name in names}
    others = []
    for repetition in range(warmups + repetitions):
        first = repetition % len(names)
        most = 0.0
        for name in names[first:] + names[:first]:
            before = watch.read()
            seconds = turns[name]()
            most = max(most, share_of_others(before, watch.read(), cores))
            if repetition >= warmups:
                own[name].append(seconds)
        others.append(most)
    return Turns(own, others[warmups:])


def _is_of_the_ranks() -> Callable[[int], bool]:
    """Tell processes by their sessions: mpirun has one of its own, and one on each further node."""
    own = torch.tensor([os.getsid(0)])
    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(found, own)
    sessions = {int(session) for session in found}
    return lambda pid: os.getsid(pid) in sessions


def _most(own: list[list[float]]) -> list[list[float]]:
    """Take the maximum over the ranks."""
    values = torch.tensor(own, dtype=torch.float64)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    most: list[list[float]] = values.tolist()
    return most


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


def summarised(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Put summaries into the place of a cell's seconds by repetition."""
    return {**cell, "seconds": {name: summary(own) for name, own in cell["seconds"].items()}}


def timed(run: Callable[[], object]) -> float:
    """Tell how many seconds a call takes."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
