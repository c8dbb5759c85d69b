"""Fits a link's constants to measurements, by least squares. Pure.

The model is that of algorithms over ranks that work at once: T = overhead + steps alpha + bytes / W, with the
steps and bytes of docs/fabrics.md (Thakur et al., 2005), and gamma from CPU time = constant + gamma bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from roundelay import _model
from roundelay.tuning.file import Level, Link, Measurement

SHARED_MEMORY = (
    "shm"  # the algorithm's name in shared memory, where there is one; its work is that of pairwise
)
_FITTED = "allreduce"
_DOUBLING = {"recursive_doubling", "halving_doubling", "recursive_halving"}
_EXACT = {"direct", "pairwise", "ring"} | _DOUBLING


def work(one: Measurement) -> tuple[int, float] | None:
    """Returns the steps on the critical path and the bytes that a rank sends.

    None if docs/fabrics.md has no exact number: for trees, and for doubling or halving without a power of
    two.
    """
    exact = _EXACT if one.ranks.bit_count() == 1 else _EXACT - _DOUBLING
    algorithm = "pairwise" if one.algorithm == SHARED_MEMORY else one.algorithm
    stage = _model.stage_of(one.operation, algorithm, one.ranks, one.bytes) if algorithm in exact else None
    return None if stage is None else (int(stage.messages), stage.bytes)


def errors(
    fitted: Link, members: int, measured: Sequence[Measurement], senders: float = 1.0
) -> dict[str, float]:
    """Returns how far the formulas of operations are from measurements, with constants that were fitted.

    By operation: the median of |formula - measured| / measured. members: those of the link's level.
    """
    found: dict[str, list[float]] = {}
    for one in measured:
        if one.level != fitted.level or one.ranks > members or (how := work(one)) is None:
            continue
        seconds = fitted.overhead + how[0] * fitted.alpha + senders * how[1] / fitted.bandwidth
        found.setdefault(one.operation, []).append(abs(seconds - one.seconds) / one.seconds)
    return {operation: float(np.median(own)) for operation, own in found.items()}


def link(level: Level, measured: Sequence[Measurement], senders: float = 1.0) -> Link | None:
    """Returns a level's constants, fitted to its allreduces; None if none can be fitted.

    Groups with more ranks than the level joins cross inner levels too, and do not count. Each measurement
    counts by its relative error, so that small messages are as important as large ones. A constant that comes
    out negative is left out of the model. senders: the share of a largest part's ranks that sent at once; the
    bandwidth is that of one of all its ranks.
    """
    known = [
        (one, how)
        for one in measured
        if (one.level, one.operation) == (level.name, _FITTED)
        and one.ranks <= level.members
        and (how := work(one)) is not None
    ]
    if len({one.bytes for one, _ in known}) < 2:
        return None
    steps = np.array([how[0] for _, how in known], dtype=float)
    sent = np.array([senders * how[1] for _, how in known])
    seconds = np.array([one.seconds for one, _ in known])
    cpu = np.array([one.cpu_seconds for one, _ in known])
    # If all numbers of steps are equal, the overhead is a part of the steps' time.
    constant = np.zeros_like(steps) if np.all(steps == steps[0]) else np.ones_like(steps)
    columns = np.stack([constant, steps, sent], axis=1)
    overhead, alpha, per_byte = _not_negative(columns, seconds)
    if per_byte <= 0:
        per_byte = float(np.min(seconds / sent))  # the best rate seen: sizes were too small to tell
    fitted = columns @ np.array([overhead, alpha, per_byte])
    _, gamma = _not_negative(np.stack([np.ones_like(sent), sent], axis=1), cpu)
    return Link(
        level=level.name,
        alpha=alpha,
        bandwidth=1 / per_byte,
        gamma=gamma,
        overhead=overhead,
        error=float(np.median(np.abs(fitted - seconds) / seconds)),
    )


def _not_negative(columns: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> list[float]:
    """Returns the coefficients of the least relative squares, with 0 for those that would be negative."""
    weights = 1 / np.maximum(values, np.finfo(float).tiny)
    used = [i for i in range(columns.shape[1]) if np.any(columns[:, i])]
    scales = np.max(np.abs(columns), axis=0)
    while used:
        scaled = columns[:, used] / scales[used] * weights[:, None]
        solution = np.linalg.lstsq(scaled, values * weights, rcond=None)[0] / scales[used]
        if np.all(solution >= 0):
            found = np.zeros(columns.shape[1])
            found[used] = solution
            return [float(one) for one in found]
        used.pop(int(np.argmin(solution * scales[used])))
    return [0.0] * columns.shape[1]
