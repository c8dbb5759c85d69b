"""Statistics of repetitions. Drops those in which others ran, and gives the others 95 % intervals. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.quiet import MOST_OTHERS
from benchmarks.table.result import Estimate, Peer, Result

BARE = ("bare", "bare memory work")
NO_BASES: Mapping[str, str] = MappingProxyType({})
_LEAST_KEPT = 0.5  # share of the repetitions; fewer would say more about the machine than about libraries
_CONFIDENCE = 0.95
_RESAMPLES = 2000
_SEED = 15  # fixed, so that the same samples have the same interval

Numbers = NDArray[np.float64]


class Samples:
    """Measurements of several things in turns, without the repetitions in which others ran.

    Args:
        measured: by name, a value for each repetition.
        others: by repetition, the highest share of the machine that others had in one of its turns (0 to 1).
        bases: by name, the name of the measurement whose median is subtracted.
        least: the lowest divisor: a cost below it counts as this.

    """

    def __init__(
        self,
        measured: Mapping[str, Sequence[float]],
        others: Sequence[float],
        bases: Mapping[str, str] = NO_BASES,
        least: float = 1e-9,
    ) -> None:
        self.of = len(others)
        self.kept = [index for index, share in enumerate(others) if share <= MOST_OTHERS]
        self._by_name = {name: np.asarray(own, float)[self.kept] for name, own in measured.items()}
        self._bases, self._least = bases, least

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    @property
    def why_not(self) -> str:
        """Return why the samples say nothing; "" if they are good."""
        if self.kept and len(self.kept) >= _LEAST_KEPT * self.of:
            return ""
        return f"other processes ran in {self.of - len(self.kept)} of {self.of} repetitions"

    def cost(self, name: str) -> Estimate:
        """Return the median, minus the median of its base."""
        return _estimate(_difference, *self._with_base(name))

    def ratio(self, name: str, own: str) -> Estimate:
        """Return the ratio of the costs of two things."""

        def statistic(
            theirs: Numbers, their_base: Numbers, ours: Numbers, our_base: Numbers, axis: int
        ) -> Numbers:
            cost = np.maximum(_difference(ours, our_base, axis), self._least)
            return _difference(theirs, their_base, axis) / cost

        return _estimate(statistic, *self._with_base(name), *self._with_base(own))

    def _with_base(self, name: str) -> tuple[Numbers, Numbers]:
        values = self._by_name[name]
        base = self._bases.get(name)
        return values, np.zeros_like(values) if base is None else self._by_name[base]


def _difference(values: Numbers, base: Numbers, axis: int) -> Numbers:
    made: Numbers = np.median(values, axis=axis) - np.median(base, axis=axis)
    return made


def _estimate(statistic: Callable[..., Numbers], *samples: Numbers) -> Estimate:
    """Bootstrap whole repetitions: a disturbance affects everything in its repetition."""
    value = float(statistic(*samples, axis=-1))
    if len(samples[0]) < 2:
        return Estimate(value)
    found = stats.bootstrap(
        samples,
        statistic,
        n_resamples=_RESAMPLES,
        paired=True,
        vectorized=True,
        confidence_level=_CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(_SEED),
    )
    return Estimate(value, *map(float, found.confidence_interval))


def tail(values: Sequence[float]) -> Estimate:
    """Return the 99th percentile by order statistics. The upper bound is None if too few values lie above."""
    value = float(np.percentile(values, 99, method="inverted_cdf"))
    bounds = stats.quantile_test(values, q=value, p=0.99).confidence_interval(_CONFIDENCE)
    low, high = (None if np.isnan(bound) else float(bound) for bound in (bounds.low, bounds.high))
    return Estimate(value, low, high)


def compare(
    work: str,
    samples: Samples,
    peers: Mapping[str, str],
    own: str = "roundelay",
    floor: tuple[str, str] = BARE,
    **more: Any,
) -> Result:
    """Compare the cost of one thing with its peers' costs and with the least possible cost.

    Args:
        work: the name of the work.
        samples: its measurements. Nothing is compared if others ran in too many of them.
        peers: the peers' names in the samples, and the names to show.
        own: Roundelay's name in the samples.
        floor: the name of the least possible work in the samples, and the name to show.
        more: further fields of the Result.

    """
    if samples.why_not:
        return Result(work, why=samples.why_not)
    beside = [
        Peer(text, samples.cost(name), samples.ratio(name, own))
        for name, text in peers.items()
        if name in samples
    ]
    if floor[0] in samples:
        more = {
            "floor": samples.cost(floor[0]),
            "floor_is": floor[1],
            "over_floor": samples.ratio(own, floor[0]),
        } | more
    return Result(
        work, own=samples.cost(own), peers=tuple(beside), kept=len(samples.kept), of=samples.of, **more
    )
