"""Rates the ways of a dense allreduce, an algorithm and a plan over levels, beside the job's own one. Pure.

The formula is that of csrc/model/levels.h, with alpha and W of each level from the tuning file, or
the usual ones. They give differences: what the job's own way takes was measured (calibration.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from roundelay import _core, _model
from roundelay.torch._internal.tuning.gate import DENSE_COST, Cost

OWN = "auto"  # in place of an algorithm: the job's own
_SMALL, _LARGE = 1 << 18, 1 << 24  # bytes of buckets, between which times are taken for a line

Stage = tuple[int, int, int]  # members of its groups, and the first and last level that it joins


class Way(NamedTuple):
    """A way, as a candidate names it."""

    algorithm: str = OWN
    factors: tuple[int, ...] = ()  # of a plan, innermost first; none: the job's own plan


class Ways(NamedTuple):
    """The ways that the job has. Equal on all ranks."""

    levels: Sequence[tuple[int, float, float]]  # innermost first: parts, seconds a message, bytes a second
    plans: Sequence[Sequence[Stage]]  # the job's own first; stages innermost first
    algorithm: str  # of the last stage; "": shared memory has one way

    @property
    def factors(self) -> list[tuple[int, ...]]:
        """The factors of the plans that may be searched, the job's own first."""
        return [tuple(members for members, _, _ in plan) for plan in self.plans]

    def cost(self, way: Way) -> Cost:
        """Returns the cost of a way beside the job's own. Its factors are among ``factors``."""
        if not self.algorithm:
            return DENSE_COST
        plan = self.plans[self.factors.index(way.factors) if way.factors else 0]
        own = self._line(self.plans[0], self.algorithm)
        other = self._line(plan, self.algorithm if way.algorithm == OWN else way.algorithm)
        return Cost(1, other[1] / own[1], 0, other[0] - own[0])

    def _line(self, plan: Sequence[Stage], algorithm: str) -> tuple[float, float]:
        """Returns the seconds of an allreduce of any size, and those of a byte."""
        small, large = (
            _model.seconds_of_way(self.levels, plan, algorithm, size) for size in (_SMALL, _LARGE)
        )
        beta = (large - small) / (_LARGE - _SMALL)
        return small - beta * _SMALL, beta


def of_job() -> Ways:
    """Returns those of this job, for all of its ranks. ValueError before init()."""
    return Ways(*_core.allreduce_ways())
