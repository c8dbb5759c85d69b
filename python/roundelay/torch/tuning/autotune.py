"""ROUNDELAY_AUTOTUNE: tries ways to cut a pool on the training itself, and keeps the fastest. Pure.

Rank 0 measures and the others follow its cuts: every step ends with a comparison of notes among all ranks, so
its steps are as long as everyone's.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from roundelay.torch.tuning.buckets import DEFAULT, Candidate, Cuts

_TRIALS = 5
_UNCOUNTED = 2  # steps after a change, in which requests are not in the response cache yet


@dataclass(slots=True)
class _Trial:
    candidate: Candidate
    seconds: list[float] = field(default_factory=list)  # of its steps


def worth_trying(candidates: Sequence[Candidate]) -> list[Candidate]:
    """A few of these: the best of each theta, and the default; spread over all thetas where none is best."""
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
    """Each candidate twice, there and back, so that a drift of the machine's speed meets all alike."""

    def __init__(self, candidates: Sequence[Candidate], steps: int) -> None:
        self._trials = [_Trial(candidate) for candidate in candidates]
        self._waiting = [*self._trials, *reversed(self._trials)]
        self._each = -(-steps // 2)
        self._steps = -1  # that began since the cuts are in use; -1: they are not
        self._end = 0.0  # of the last one

    @property
    def over(self) -> bool:
        """Whether the fastest is known."""
        return not self._waiting

    @property
    def cuts(self) -> Cuts:
        """What is to be used now; at the end the fastest."""
        return (self._waiting[0] if self._waiting else self.fastest()).candidate.cuts

    def fastest(self) -> _Trial:
        """The one with the least median."""
        return min(self._trials, key=lambda trial: statistics.median(trial.seconds))

    def step_over(self, cuts: Cuts, now: float) -> bool:
        """A step has ended now, in seconds; the next one uses these cuts. Whether all is known now."""
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
        """A JSON line for each candidate."""
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
