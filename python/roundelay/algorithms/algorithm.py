"""An algorithm as its author writes it, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from roundelay.algorithms.trees import add

State = TypeVar("State")


@dataclass(frozen=True)
class Algorithm(Generic[State]):
    """A step of training as three pure functions: ``update(state, combine of all evaluate(state, shard))``.

    Trees are nested dicts, lists, tuples, named tuples and dataclasses.

    state: the first state: a tree of tensors, numbers, texts and None.
    evaluate: state and shard to a partial result: a tree of tensors and numbers. A number arrives in
    ``combine`` and ``update`` as a tensor without dimensions (float64, int64). All shards give equal shapes
    and dtypes.
    update: state and total to the next state. The total has the shapes of a partial result.
    combine: two partial results to one; associative, but for rounding. Its first argument belongs to shards
    that precede those of the second. Default: the sum, leaf by leaf.

    Source: Besch and Pohl, PDP 1995.
    """

    state: State
    evaluate: Callable[[State, Any], Any]
    update: Callable[[State, Any], State]
    combine: Callable[[Any, Any], Any] = add


@dataclass(frozen=True)
class Result(Generic[State]):
    """The end of a run. Every rank has the same one."""

    state: State
    steps: int  # the steps since the first state, also over several runs with one checkpoint
    converged: bool  # True: ``until`` ended the run
