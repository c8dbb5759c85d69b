"""Weights of ranks, and values, whose weighted averages are exact on 2 and on 4 ranks."""

from __future__ import annotations

import roundelay.torch as hvd


def uneven() -> list[float]:
    """Returns weights of all ranks, whose sum is a power of two."""
    return [3.0, 1.0, 8.0, 4.0][: hvd.size()]


def values() -> list[float]:
    """Returns a value for each rank."""
    return [float(16 * (rank + 1)) for rank in range(hvd.size())]


def weighted_mean() -> float:
    """Returns the average of the values with the uneven weights."""
    return sum(v * w for v, w in zip(values(), uneven(), strict=True)) / sum(uneven())
