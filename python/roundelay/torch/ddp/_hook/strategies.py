"""The strategies that a hook takes: those that treat each bucket by itself, and need no optimizer."""

from __future__ import annotations

import weakref

from roundelay.torch import strategies
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch.strategies._lossy.lossy import Lossy

_states: weakref.WeakKeyDictionary[Strategy, weakref.ref[object]]
_states = weakref.WeakKeyDictionary()  # the states of strategies' hooks
_KINDS = (strategies.Dense, strategies.CSC, strategies.TopK, strategies.PowerSGD, strategies.Quantised)


def strategy_of(given: str | Strategy) -> Strategy:
    """Returns the strategy that a text means, or the object that was given. ValueError: no hook takes it."""
    strategy = strategies.parse(given) if isinstance(given, str) else given
    if strategy.owner is not None or _states.get(strategy, _nobody)() is not None:
        raise ValueError(
            f"this object of strategy {strategy.text} belongs to an optimizer or a hook already: make one "
            "for each"
        )
    if not isinstance(strategy, _KINDS):
        raise ValueError(
            f"a hook of DDP takes dense, csc, topk, power_sgd and quantised, not {strategy.text!r}: that one "
            "works around the optimizer's step, so give it to hvd.DistributedOptimizer"
        )
    if not isinstance(strategy, Lossy):
        return strategy
    strategy.follow(None)
    if strategy.momentum != "none":
        raise ValueError(
            f"strategy {strategy.text} corrects the momentum of an optimizer, which a hook of DDP does not "
            "see: give it momentum=None (in text: momentum=none), or take hvd.DistributedOptimizer"
        )
    return strategy


def claim(strategy: Strategy, state: object) -> None:
    """Notes that the strategy belongs to a hook with this state, while that lives."""
    _states[strategy] = weakref.ref(state)


def _nobody() -> None:
    """Stands for a state that there is not."""
