"""Rates techniques and the ways of a dense allreduce beside the job's own one. Pure.

A way is an algorithm and a plan over levels. The formulas are those of csrc/model, with alpha and W of
each level from the tuning file, or the usual ones. They give differences: what the job's own way takes was
measured (calibration.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

from roundelay import _core, _model
from roundelay.torch._internal.tuning.gate import DENSE_COST, Cost

OWN = "auto"  # in place of an algorithm: the job's own
_SMALL, _LARGE = 1 << 18, 1 << 24  # bytes of buckets, between which times are taken for a line

Formula = Callable[[_model.Cluster, float], _model.Program]  # of a bucket of so many bytes
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
        algorithm = self.algorithm if way.algorithm == OWN else way.algorithm
        return _beside(
            lambda size: _model.seconds_of_way(self.levels, self.plans[0], self.algorithm, size),
            lambda size: _model.seconds_of_way(self.levels, plan, algorithm, size),
        )

    def cost_of(self, formula: Formula) -> Cost | None:
        """Returns the cost of a technique; None on a single node, where messages are not what takes time."""
        if not self.algorithm:
            return None
        cluster = self._cluster()
        cost = _beside(
            lambda size: _model.seconds(_model.dense(cluster, size), cluster),
            lambda size: _model.seconds(formula(cluster, size), cluster),
        )
        stages = formula(cluster, _LARGE).stages
        moved = sum(stage.bytes for stage in stages if stage.kind == _model.Kind.MEMORY)
        return dataclasses.replace(cost, passes=moved / (2 * _LARGE))  # a copy reads and writes

    def _cluster(self) -> _model.Cluster:
        """Returns the levels; all ranks of a part share its end of the link."""
        levels, inner = [], 0  # ranks of a part of the level below; no ranks share the memory
        for parts, alpha, rate in self.levels:
            levels.append(_model.Level(parts, _model.Link(alpha, rate, sharers=max(1, inner))))
            inner = max(1, inner) * parts
        return _model.Cluster(levels)


def _beside(own: Callable[[float], float], other: Callable[[float], float]) -> Cost:
    """Returns the cost of another way beside the job's own one, both in seconds for a number of bytes."""
    (latency, beta), (other_latency, other_beta) = _line(own), _line(other)
    return Cost(1, other_beta / beta, 0, other_latency - latency)


def _line(seconds: Callable[[float], float]) -> tuple[float, float]:
    """Returns the seconds of an operation of any size, and those of a byte."""
    small, large = seconds(_SMALL), seconds(_LARGE)
    beta = (large - small) / (_LARGE - _SMALL)
    return small - beta * _SMALL, beta


def of_job() -> Ways:
    """Returns those of this job, for all of its ranks. ValueError before init()."""
    return Ways(*_core.allreduce_ways())
