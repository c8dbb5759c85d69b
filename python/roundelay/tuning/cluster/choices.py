"""Chooses algorithms from measurements. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from roundelay.tuning.file import ALGORITHMS, Choice, Measurement

NOISE = 1.05  # an algorithm replaces that of the size before only if it is faster by this factor


def table(measured: Sequence[Measurement]) -> tuple[Choice, ...]:
    """Returns the choices for every level, operation and number of ranks that was measured.

    Between two sizes with different algorithms the choice changes at their geometric mean.
    """
    keys = dict.fromkeys((one.level, one.operation, one.ranks) for one in measured)
    found: list[Choice] = []
    for level, operation, ranks in keys:
        own = [
            one
            for one in measured
            if (one.level, one.operation, one.ranks) == (level, operation, ranks)
            and one.algorithm in ALGORITHMS[operation]
        ]
        bests = _bests(own)
        for (size, algorithm), (larger, other) in pairwise(bests):
            if algorithm != other:
                most = math.isqrt(size * larger)
                found.append(Choice(level, operation, ranks, most, algorithm))
        if bests:
            found.append(Choice(level, operation, ranks, None, bests[-1][1]))
    return tuple(found)


def _bests(measured: Sequence[Measurement]) -> list[tuple[int, str]]:
    """Returns the algorithm of each size, ascending."""
    bests: list[tuple[int, str]] = []
    for size in sorted({one.bytes for one in measured}):
        seconds = {one.algorithm: one.seconds for one in measured if one.bytes == size}
        best = min(seconds, key=lambda name: seconds[name])
        before = bests[-1][1] if bests else None
        if before in seconds and seconds[before] <= NOISE * seconds[best]:
            best = before
        bests.append((size, best))
    return bests
