"""ROUNDELAY_AUTOTUNE: tries sizes of buckets on the training itself (trials.py), keeps the fastest. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from roundelay.buckets import DEFAULT, Candidate, Cuts
from roundelay.torch.tuning.trials import Trials

_TRIALS = 5
# The step in which cuts come into use does not count, nor do so many after it: requests are not cached yet.
_UNCOUNTED = 2


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
    """Tries each candidate twice. steps: the number of steps that count for each, in both trials together."""

    def __init__(self, candidates: Sequence[Candidate], steps: int) -> None:
        self._trials = Trials(candidates, steps, _UNCOUNTED)

    @property
    def over(self) -> bool:
        """True if every candidate was tried."""
        return self._trials.over

    @property
    def cuts(self) -> Cuts:
        """The cuts to use now; at the end the fastest."""
        return self._trials.current.cuts

    def step_over(self, cuts: Cuts, now: float) -> bool:
        """Records the end of a step (now: in seconds); the next one uses these cuts. Returns ``over``."""
        return self._trials.step_over(cuts == self.cuts, now)

    def report(self, optimizer: str) -> str:
        """Returns a JSON line for each candidate. optimizer: the prefix of its names."""
        kept = self._trials.fastest()
        return "".join(
            json.dumps(
                {
                    "optimizer": optimizer,
                    "theta": trial.candidate.cuts.theta,
                    "last": trial.candidate.cuts.last,
                    "buckets": trial.candidate.buckets,
                    "predicted_ms": _ms(trial.candidate.predicted),
                    "step_ms": _ms(trial.median),
                    "fastest_ms": _ms(min(trial.seconds)),
                    "slowest_ms": _ms(max(trial.seconds)),
                    "kept": trial is kept,
                }
            )
            + "\n"
            for trial in self._trials.tried
        )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)
