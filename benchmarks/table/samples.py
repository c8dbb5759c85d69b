"""What repetitions tell: those in which others ran are dropped, and what is left has 95 % intervals. Pure."""

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
_LEAST_KEPT = 0.5  # of the repetitions: less says more about the machine than about the libraries
_CONFIDENCE = 0.95
_RESAMPLES = 2000
_SEED = 15  # the same samples have the same interval

Numbers = NDArray[np.float64]


class Samples:
    """Measurements of several things, taken in turns: those of the repetitions in which nobody else ran.

    Args:
        measured: by name, a value for each repetition.
        others: by repetition, the most that others had of the machine in one of its turns (0 to 1).
        bases: by name, the name of what is taken off: of its median.
        least: where something is divided by a cost, one below that is taken as that.

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
        """Why these say nothing; empty if they do."""
        if self.kept and len(self.kept) >= _LEAST_KEPT * self.of:
            return ""
        return f"other processes ran in {self.of - len(self.kept)} of {self.of} repetitions"

    def cost(self, name: str) -> Estimate:
        """Tell the median, less its base's."""
        return _estimate(_difference, *self._with_base(name))

    def ratio(self, name: str, own: str) -> Estimate:
        """Tell how many times as much one costs as another."""

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
    """Bootstrap whole repetitions: what hit one of them hit all that were measured in it."""
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
    """Tell the 99th percentile, by order statistics; the upper bound is None where too few lie above it."""
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
    """Compare what one thing costs with what its peers cost and with what it costs at least.

    Args:
        work: what it is.
        samples: its measurements. Where others ran in too many, nothing is compared.
        peers: names in the samples, and what they are called.
        own: Roundelay's name in the samples.
        floor: the name of what cannot be left out, and what it is.
        more: of Result's fields.

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
