"""The strategies that a hook takes: those that treat each bucket by itself, and need no optimizer."""

from __future__ import annotations

from roundelay._internal.spelling import reading
from roundelay.torch import strategies
from roundelay.torch._internal.strategy.strategy import Strategy

_KINDS = (strategies.Dense, strategies.CSC, strategies.TopK, strategies.PowerSGD)
_MOMENTA = ("csc", "topk")  # these have a momentum of their own, unless the text says otherwise


def strategy_of(given: str | Strategy) -> Strategy:
    """Returns the strategy that a text means, or the object that was given. ValueError: no hook takes it."""
    strategy = _parse(given) if isinstance(given, str) else given
    if not isinstance(strategy, _KINDS):
        raise ValueError(
            f"a hook of DDP takes dense, csc, topk and power_sgd, not {strategy.text!r}: that one works "
            "around the optimizer's step, so give it to hvd.DistributedOptimizer"
        )
    momentum = getattr(strategy, "momentum", "none")
    if momentum != "none":
        raise ValueError(
            f"strategy {strategy.text} corrects the momentum of an optimizer, which a hook of DDP does not "
            "see: give it momentum=None (in text: momentum=none), or take hvd.DistributedOptimizer"
        )
    return strategy


def _parse(text: str) -> Strategy:
    """Does as hvd.strategies.parse(), but the default of momentum is none."""
    found = reading.read(text)
    if found.name in _MOMENTA and "momentum" not in found.values:
        text = reading.write(found.name, {**found.values, "momentum": "none"})
    return strategies.parse(text)
