"""The tools of a measuring rank: the other ranks, turns, times and summaries."""

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
# Makes the same number of measurements on each rank, and returns their seconds on this rank.
Turn = Callable[[], list[float]]
_SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")


class Ranks:
    """All ranks: a Gloo group and a gate. All ranks make and call it alike."""

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
        """Wait for all ranks; return within a microsecond of each other if each rank has a core.

        After Gloo's barrier, ranks would be tens of microseconds apart, as much as some measurements.
        """
        dist.barrier()  # lets the ranks sleep until the last one is near
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
    """Run one rank of `launch.run_ranks`: call `main` with the spec, and store its result."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    found = main(spec)
    (Path(spec["folder"]) / f"result{own_rank()}.json").write_text(json.dumps(found))


@dataclass(frozen=True)
class Turns(Generic[Key]):
    """The results of take_turns(): the seconds of each measurement, by key and repetition.

    `others` has, by repetition, the highest share of the machine that other processes had in one of its
    turns.
    """

    seconds: Mapping[Key, list[list[float]]]
    others: list[float]

    def single(self) -> dict[Key, list[float]]:
        """Return the seconds by repetition, for turns that measure once."""
        return {name: [seconds for (seconds,) in all_] for name, all_ in self.seconds.items()}


def take_turns(turns: Mapping[Key, Turn], repetitions: int, warmups: int = 1) -> Turns[Key]:
    """Run each turn in every repetition, each time starting with another, so that drift affects all alike.

    Args:
        turns: the measurements, by key; a turn may make several.
        repetitions: the number of repetitions that count.
        warmups: the number of repetitions before these.

    Returns:
        For each measurement, the seconds of the slowest rank; for `others`, the highest share of all ranks.

    """
    own = _in_turn(turns, repetitions, warmups, Watch(_is_of_the_ranks()))
    seconds = {name: _most(all_) for name, all_ in own.seconds.items()}
    return Turns(seconds, *_most([own.others]))


def in_turn(turns: Mapping[Key, Turn], repetitions: int, warmups: int = 0) -> Turns[Key]:
    """Do the same as take_turns in this process alone. Turns may wait for child processes."""
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
    """Return a test for the job's processes. It compares sessions: mpirun has one on each node."""
    own = torch.tensor([os.getsid(0)])
    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(found, own)
    sessions = {int(session) for session in found}
    return lambda pid: os.getsid(pid) in sessions


def _most(own: list[list[float]]) -> list[list[float]]:
    """Return the maximum over the ranks."""
    values = torch.tensor(own, dtype=torch.float64)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    most: list[list[float]] = values.tolist()
    return most


def summary(seconds: list[float]) -> dict[str, float]:
    """Return the median, the quartiles, the 99th percentile and the minimum, in seconds."""
    quarters = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else [seconds[0]] * 3
    return {
        "median": statistics.median(seconds),
        "low": quarters[0],
        "high": quarters[2],
        "p99": sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1],
        "least": min(seconds),
    }


def summarised(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a cell's seconds by repetition with their summaries."""
    return {**cell, "seconds": {name: summary(own) for name, own in cell["seconds"].items()}}


def sent() -> int:
    """Return the bytes that this rank's node has sent to the others of its rig (tests/rig)."""
    return int(_SENT.read_text())


def timed(run: Callable[[], object]) -> float:
    """Return how many seconds a call takes."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
