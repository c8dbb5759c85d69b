"""ROUNDELAY_AUTOTUNE: tries sizes of buckets on the training itself, and keeps the fastest. Pure.

Rank 0 measures and the others use its cuts (buckets.py). Every step ends with an agreement round among all
ranks (optimizer/gradient_sync.py), so rank 0's steps take as long as the others'.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from roundelay.buckets import DEFAULT, Candidate, Cuts

_TRIALS = 5
# The step in which cuts come into use does not count, nor do so many after it: requests are not cached yet.
_UNCOUNTED = 2


@dataclass(slots=True)
class _Trial:
    candidate: Candidate
    seconds: list[float] = field(default_factory=list)  # durations of its steps


def worth_trying(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns a few candidates: the best thetas' and the default; without predictions, some thetas'."""
    by_theta: dict[int, Candidate] = {}
    for candidate in candidates:
        by_theta.setdefault(candidate.cuts.theta, candidate)
    distinct = list(by_theta.values())
    if distinct[0].predicted is None:
        return distinct[:: -(-len(distinct) // _TRIALS)]
    chosen = distinct[:_TRIALS]
    default = next(one for one in candidates if one.cuts == DEFAULT)
    return chosen if default in chosen else [*chosen[: _TRIALS - 1], default]


class Autotune:
    """Tries each candidate twice, in order and in reverse: a drift of the machine's speed meets all alike.

    steps: the number of steps that count for each candidate, in both trials together.
    """

    def __init__(self, candidates: Sequence[Candidate], steps: int) -> None:
        self._trials = [_Trial(candidate) for candidate in candidates]
        self._waiting = [*self._trials, *reversed(self._trials)]
        self._each = -(-steps // 2)
        self._steps = -1  # the number of steps with these cuts; -1: the cuts are not in use yet
        self._end = 0.0  # the time when the last step ended

    @property
    def over(self) -> bool:
        """True if every candidate was tried."""
        return not self._waiting

    @property
    def cuts(self) -> Cuts:
        """The cuts to use now; at the end the fastest."""
        return (self._waiting[0] if self._waiting else self.fastest()).candidate.cuts

    def fastest(self) -> _Trial:
        """Returns the trial with the least median."""
        return min(self._trials, key=lambda trial: statistics.median(trial.seconds))

    def step_over(self, cuts: Cuts, now: float) -> bool:
        """Records the end of a step (now: in seconds); the next one uses these cuts. Returns ``over``."""
        if cuts != self.cuts:
            self._steps = -1
            return False
        self._steps += 1
        trial = self._waiting[0]
        if self._steps > _UNCOUNTED:
            trial.seconds.append(now - self._end)
        self._end = now
        if self._steps == _UNCOUNTED + self._each:
            self._waiting.pop(0)
            self._steps = -1
        return self.over

    def report(self, optimizer: str) -> str:
        """Returns a JSON line for each candidate. optimizer: the prefix of its names."""
        kept = self.fastest()
        return "".join(
            json.dumps(
                {
                    "optimizer": optimizer,
                    "theta": trial.candidate.cuts.theta,
                    "last": trial.candidate.cuts.last,
                    "buckets": trial.candidate.buckets,
                    "predicted_ms": _ms(trial.candidate.predicted),
                    "step_ms": _ms(statistics.median(trial.seconds)),
                    "fastest_ms": _ms(min(trial.seconds)),
                    "slowest_ms": _ms(max(trial.seconds)),
                    "kept": trial is kept,
                }
            )
            + "\n"
            for trial in self._trials
        )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)
