"""Blocking sums by different numbers of threads of a rank, equally many in all; switches between threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure

_COUNT = 64  # fp32 elements of a sum: 256 bytes


class _Sums:
    """Measures the time of a sum. The threads have names of their own for their sums."""

    def __init__(self, threads: int, calls: int, ranks: measure.Ranks) -> None:
        self._each, self._ranks = calls // threads, ranks
        self._names = [f"bench.thread.{number}" for number in range(threads)]
        self._pool = ThreadPoolExecutor(threads)
        self._right = torch.full((_COUNT,), float(sum(range(1, ranks.size + 1))))

    def __call__(self) -> list[float]:
        self._ranks.meet()
        seconds = measure.timed(lambda: list(self._pool.map(self._work, self._names)))
        return [seconds / (self._each * len(self._names))]

    def _work(self, name: str) -> None:
        given = torch.full((_COUNT,), self._ranks.rank + 1.0)
        for _ in range(self._each):
            total = hvd.allreduce(given, name=name, op=hvd.Sum)
            assert torch.equal(total, self._right), name


class _Switches:
    """Measures the time of a switch between threads that wake the next one and do nothing else."""

    def __init__(self, threads: int, calls: int, ranks: measure.Ranks) -> None:
        self._threads, self._each, self._ranks = threads, calls // threads, ranks
        self._pool = ThreadPoolExecutor(threads)

    def __call__(self) -> list[float]:
        turns = [threading.Lock() for _ in range(self._threads)]
        for turn in turns:
            turn.acquire()

        def wake_and_sleep(own: int) -> None:
            for _ in range(self._each):
                turns[own].acquire()
                turns[(own + 1) % self._threads].release()

        self._ranks.meet()
        turns[0].release()
        seconds = measure.timed(lambda: list(self._pool.map(wake_and_sleep, range(self._threads))))
        return [seconds / (self._threads * self._each)]


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure each number of threads."""
    ranks = measure.Ranks(spec)
    hvd.init()
    turns: dict[str, measure.Turn] = {
        str(threads): _Sums(threads, spec["calls"], ranks) for threads in spec["threads"]
    }
    turns["switch"] = _Switches(max(spec["threads"]), spec["calls"], ranks)
    found = measure.take_turns(turns, spec["repetitions"])
    ranks.leave()
    return {"seconds": found.single(), "others": found.others}


if __name__ == "__main__":
    measure.worker(main)
