"""Measures the cost of operations on a process set, in the memory where a pool's buckets will be reduced.

It happens once in a job for each process set, when its first pool that is large enough comes into use. An
agreement round (optimizer/gradient_sync.py) tells all ranks that it happens now. At that time they wait for
nothing else, so they can afford to wait for each other for some milliseconds. Rank 0's numbers count: all
ranks get the cuts that follow from them.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import combinations

import torch

from roundelay import _core
from roundelay.torch.process_sets import ProcessSet
from roundelay.tuning.buckets import Link

SMALLEST = 256 << 10  # bytes: a smaller pool is one bucket whatever operations cost
_SIZES = (4 << 10, SMALLEST, 4 << 20)
_REPEATS = 4  # measurements of each size, after one that touches the memory
_COPIED_BYTES = 4 << 20
_BUDGET_S = 0.04  # after which no further measurement of a process set begins

_links: dict[tuple[int, ...], Link] = {}  # keys: the world ranks of process sets


def known(process_set: ProcessSet) -> Link | None:
    """Returns the cost that was measured in this job; None if none was."""
    return _links.get(tuple(process_set.ranks))


def forget() -> None:
    """Forgets all measurements. ``shutdown`` calls it: the next job may run elsewhere."""
    _links.clear()


def copy_rate() -> float:
    """Measures the bytes that a copy in this rank's memory moves in a second."""
    source = torch.empty(_COPIED_BYTES, dtype=torch.uint8)
    target = torch.empty_like(source)
    target.copy_(source)  # touches the memory
    begin = time.perf_counter()
    target.copy_(source)
    return _COPIED_BYTES / (time.perf_counter() - begin)


def calibrate(start: Callable[[int], int], word: torch.Tensor, bytes_: int, process_set: ProcessSet) -> None:
    """Measures and remembers the cost. Collective and blocking: every rank calls it at the same place.

    start: a function that begins an allreduce (Sum) of as many bytes as it is given, at the beginning of a
    pool, and returns its handle. bytes_: the pool's size, 256 KiB or more. word: the first element of that
    memory, which may be written. Errors: those of the operations.
    """
    meter = _Meter(start, word)
    samples = {}
    busy = 0.0
    for size in (size for size in _SIZES if size <= bytes_):
        began, computed = time.perf_counter(), time.process_time()
        times = meter.repeat(size)
        if not times:
            break
        busy = (time.process_time() - computed) / (time.perf_counter() - began)
        samples[size] = min(times[1:] or times)  # other load only adds to them
    alpha, beta = fit(list(samples.items()))
    allowed = len(os.sched_getaffinity(0))
    is_crowded = crowded(torch.get_num_threads(), _core.local_size(), allowed, os.cpu_count() or allowed)
    share = min(1.0, busy) if is_crowded else 0.0
    _links[tuple(process_set.ranks)] = Link(alpha, beta, statistics.median(meter.submits), share)


def crowded(threads: int, ranks: int, allowed: int, cores: int) -> bool:
    """Returns whether training keeps all cores of a rank busy, so that communication takes time from it.

    threads: the threads with which a rank computes. ranks, cores: those of the node. allowed: the number of
    cores that a rank may use. It is assumed that the ranks share the cores evenly.
    """
    sharing = max(1.0, ranks * allowed / cores)
    return threads * sharing >= allowed


def fit(samples: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Returns the seconds of an operation and of a byte: Theil and Sen's line through (bytes, seconds).

    No size counts as slower than a larger one: load has delayed it. If no sample is slower than a smaller
    one, all of the largest one's time may be transfer. The latency is never negative, and a byte's time is
    positive: with 0 for it the model would take bytes for free.
    """
    bounded: list[tuple[int, float]] = []
    for size, seconds in sorted(samples, reverse=True):
        bounded.append((size, min(seconds, bounded[-1][1]) if bounded else seconds))
    slopes = [(t0 - t1) / (b0 - b1) for (b0, t0), (b1, t1) in combinations(bounded, 2) if b0 != b1]
    beta = statistics.median(slopes) if slopes else 0.0
    if beta <= 0:
        beta = bounded[0][1] / bounded[0][0]
    return max(0.0, statistics.median(seconds - beta * size for size, seconds in bounded)), beta


class _Meter:
    """Times operations until a rank has spent its budget. The operations' result tells this to all ranks."""

    def __init__(self, start: Callable[[int], int], word: torch.Tensor) -> None:
        self._start = start
        self._word = word
        self._end = time.perf_counter() + _BUDGET_S
        self._spent = False
        self.submits: list[float] = []

    def repeat(self, size: int) -> list[float]:
        """Returns the seconds of operations of this size; fewer if the budget ends, but one for two sizes."""
        times: list[float] = []
        while len(times) <= _REPEATS and not (self._spent and (times or size > SMALLEST)):
            times.append(self._once(size))
        return times

    def _once(self, size: int) -> float:
        begin = time.perf_counter()
        self._word.fill_(float(begin > self._end))
        handle = self._start(size)
        self.submits.append(time.perf_counter() - begin)
        _core.synchronize(handle)
        self._spent = bool(self._word.item() > 0)
        return time.perf_counter() - begin
