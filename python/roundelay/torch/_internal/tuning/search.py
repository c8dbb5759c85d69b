"""The search of one optimizer: it chooses the sizes of buckets, and a candidate of its strategy. Pure.

A *setting* is both: cuts, and a plan with a candidate for each bucket. The model (gate.py) rates all settings
with the overlap recursion of buckets.py. The best few are tried on the training itself (trial_steps.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from roundelay.torch._internal.tuning.gate import Cost, Plan, durations, plans
from roundelay.torch._internal.tuning.trial_steps import Trial, Trials
from roundelay.tuning.buckets import Cuts, Link, Piece, end_of

_SIZES = 5  # settings to try where sizes are searched, without those that the model does not know
_PLANS = 3  # and where only plans are
_WORTH = 0.01  # part of the first setting's time that another one must save


class Setting(NamedTuple):
    """Cuts and a plan, their number of buckets, and the predicted end of communication in seconds."""

    cuts: Cuts
    plan: Plan
    buckets: int
    predicted: float | None  # None: nothing was measured, or the model does not know a technique


class Model(NamedTuple):
    """Rates settings. costs, mixed: those of the strategy's candidates, dense first (gate.py)."""

    costs: Sequence[Cost | None]
    mixed: Sequence[bool]
    link: Link | None  # None: nothing was measured

    def settings(self, cuts: Cuts, buckets: Sequence[Piece]) -> list[Setting]:
        """Returns all settings with these cuts, the dense one first."""
        sizes = [bucket.bytes for bucket in buckets]
        return [
            Setting(cuts, plan, len(buckets), self._predicted(plan, sizes, buckets))
            for plan in plans(sizes, self.costs, self.mixed, self.link)
        ]

    def _predicted(self, plan: Plan, sizes: Sequence[int], buckets: Sequence[Piece]) -> float | None:
        times = durations(plan, sizes, self.costs, self.link)
        return None if times is None or self.link is None else end_of(buckets, times, self.link)


def worth_trying(
    layouts: Sequence[tuple[Cuts, Sequence[Piece]]], model: Model, sizes: bool = False
) -> list[Setting]:
    """Returns the settings to try. The first one is the present one: dense, with the first cuts.

    layouts: the present cuts, then others. With predictions it returns the best setting of each kind of plan
    and, if sizes are searched, too, the best sizes of each theta. A candidate that the model does not know is
    tried with the present cuts.
    """
    every = [model.settings(cuts, buckets) for cuts, buckets in layouts]
    now = every[0][0]
    unknown = [one for one in every[0][1:] if one.predicted is None]
    if now.predicted is None:
        others = every[1:]
        return [now, *unknown, *(own[0] for own in others[:: -(-len(others) // (_SIZES - 1)) or 1])]
    known = [one for own in every for one in own if one.predicted is not None and one != now]
    if not sizes:  # other cuts for the same plan are no kind of their own
        end, kind = now.predicted, set(now.plan)
        known = [one for one in known if set(one.plan) != kind or (one.predicted or 0.0) < end]
    ranked = sorted(known, key=lambda one: one.predicted or 0.0)
    best = _first(ranked, lambda one: frozenset(one.plan))[: _PLANS - 1]
    if sizes:
        best = [*best, *_first(ranked, lambda one: (one.cuts.theta, frozenset(one.plan)))]
    return [now, *list(dict.fromkeys(best))[: _SIZES - 1], *unknown]


def _first(settings: Iterable[Setting], key: Callable[[Setting], object]) -> list[Setting]:
    """Returns the first setting with each key."""
    found: dict[object, Setting] = {}
    for setting in settings:
        found.setdefault(key(setting), setting)
    return list(found.values())


class Search:
    """Tries settings, each twice. steps, uncounted: those of Trials."""

    def __init__(self, settings: Sequence[Setting], steps: int, uncounted: int) -> None:
        self._trials = Trials(settings, steps, uncounted)

    @property
    def current(self) -> Setting:
        """The setting to use now; at the end the one to keep."""
        return self.kept.candidate if self._trials.over else self._trials.current

    @property
    def kept(self) -> Trial[Setting]:
        """The trial of the fastest setting, or of the first one if that saves too little."""
        first, best = self._trials.tried[0], self._trials.fastest()
        return best if best.median < first.median * (1 - _WORTH) else first

    @property
    def tried(self) -> Sequence[Trial[Setting]]:
        """All trials, in the order of the settings."""
        return self._trials.tried

    def step_over(self, in_use: bool, now: float) -> bool:
        """Records a step's end. now: seconds. in_use: the step had the current setting. True: all is over."""
        return self._trials.step_over(in_use, now)

    def report(self, optimizer: str, date: str, named: Callable[[Plan], str]) -> str:
        """Returns a JSON line for each setting, for ROUNDELAY_AUTOTUNE_LOG.

        optimizer: the prefix of its operations' names. date: that of the search's end. named: names a plan.
        """
        kept = self.kept
        return "".join(
            json.dumps(
                {
                    "optimizer": optimizer,
                    "date": date,
                    "theta": trial.candidate.cuts.theta,
                    "last": trial.candidate.cuts.last,
                    "buckets": trial.candidate.buckets,
                    "strategy": named(trial.candidate.plan),
                    "predicted_ms": _ms(trial.candidate.predicted),
                    "step_ms": _ms(trial.median),
                    "fastest_ms": _ms(min(trial.seconds)),
                    "slowest_ms": _ms(max(trial.seconds)),
                    "kept": trial is kept,
                }
            )
            + "\n"
            for trial in self.tried
        )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)
