"""The candidates of strategy auto: what each does to a bucket, and what the cost model knows of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from roundelay._internal.spelling.reading import read, write
from roundelay._internal.spelling.table import CHOICES, Loss, allreduce_algorithms
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch._internal.strategy.text import parse
from roundelay.torch._internal.tuning.gate import DENSE_COST, Cost
from roundelay.torch._internal.tuning.trial_steps import UNCOUNTED_LOSSY
from roundelay.torch._internal.tuning.ways import Way, Ways
from roundelay.torch.strategies._lossy.kept_back import KeepsBack
from roundelay.torch.strategies.csc import CSC
from roundelay.torch.strategies.dense import Dense
from roundelay.torch.strategies.fixed import Fixed

_ALLREDUCE = "allreduce"
_BF16 = "dense:wire=bf16"
_HALF = Cost(1, 0.5, 1.5)  # reads four bytes and writes two, and the reverse: three quarters of a copy each
_CSC_PASSES = 3  # gradient and residual, norms; gather and scatter of the chosen


class Candidate(NamedTuple):
    """A candidate. At most one of ``lossy`` and ``way`` is given."""

    text: str
    spec: Spec | None  # the technique of all buckets; None: it is dense, or ``lossy`` chooses it
    lossy: KeepsBack | None  # the strategy, if it keeps gradients back
    own_cost: Cost | None  # for the cost model; None: ``way`` or ``lossy`` has it, or nobody knows it
    way: Way | None = None  # the way of a dense allreduce

    def cost(self, ways: Ways | None) -> Cost | None:
        """Returns its cost; None: the model does not know it. ways: None: those of its ranks are unknown."""
        if self.own_cost is not None or ways is None:
            return self.own_cost
        if self.way is not None:
            return ways.cost(self.way)
        formula = None if self.lossy is None else self.lossy.formula()
        return None if formula is None else ways.cost_of(formula)


DENSE_CANDIDATE = Candidate("dense", None, None, DENSE_COST)


def candidate(given: str | Strategy) -> Candidate:
    """Returns the candidate of a name, a text or an object. ValueError: it is none."""
    strategy = parse(given) if isinstance(given, str) else given
    if not isinstance(strategy, Strategy):
        raise ValueError(f"candidate {given!r} is no strategy and no text of one")
    if type(strategy) is Dense:
        half = Candidate(strategy.text, Spec(strategy.text), None, _HALF)
        return DENSE_CANDIDATE if strategy.wire is None else half
    if type(strategy) is Fixed and strategy.wire is None and strategy.text.startswith(_ALLREDUCE):
        return _of_way(strategy.text)
    if not isinstance(strategy, KeepsBack):
        raise ValueError(
            f"candidate {strategy.text!r} cannot be switched on and off: candidates are "
            f"{', '.join(text for text in CHOICES if text.startswith('dense'))}, {_ALLREDUCE}:algorithm=... "
            "and lossy strategies"
        )
    if strategy.warmup_steps > UNCOUNTED_LOSSY:
        raise ValueError(
            f"candidate {strategy.text!r} has a warmup of {strategy.warmup_steps} steps, which is not over "
            f"when its trial is measured: give it a warmup of at most {UNCOUNTED_LOSSY} steps"
        )
    return Candidate(strategy.text, None, strategy, _cost(strategy))


def of_loss(loss: str) -> list[Candidate]:
    """Returns the candidates of a user who says only what gradients may lose: those with the defaults."""
    texts = {
        Loss.NONE: _algorithm_texts(),
        Loss.ROUNDING: [_BF16],
        Loss.PARTS: [_BF16, "quantised", "csc", "topk", "power_sgd"],
    }
    return [candidate(text) for text in texts[Loss(loss)]]


def check_loss(candidates: Iterable[Candidate], loss: str) -> None:
    """Raises ValueError if a candidate loses more than the user allows."""
    order = list(Loss)
    for one in candidates:
        own = Loss.PARTS if one.lossy is not None else read(one.text).loss or Loss.PARTS
        if order.index(own) > order.index(Loss(loss)):
            raise ValueError(
                f"candidate {one.text!r} is {own.value}, which loss={loss} does not allow: leave it out, or "
                "allow more"
            )


def plan_candidates(ways: Ways) -> list[Candidate]:
    """Returns those of the plans over levels that a search may try, beside the job's own one: ``2x4``."""
    return [_of_way(write(_ALLREDUCE, {"factors": factors})) for factors in ways.factors[1:]]


def algorithm_candidates(ways: Ways, named: Collection[str]) -> list[Candidate]:
    """Returns those of the algorithms that are not named yet; none on a single node, which has one way."""
    every = _algorithm_texts() if ways.algorithm else []
    return [_of_way(text) for text in every if text not in named]


def _algorithm_texts() -> list[str]:
    return [write(_ALLREDUCE, {"algorithm": name}) for name in allreduce_algorithms()]


def _of_way(text: str) -> Candidate:
    """Returns a dense allreduce by one algorithm, or by one plan over levels."""
    found = read(text)
    way = Way(found.value("algorithm"), found.value("factors"))
    return Candidate(found.text, Spec(found.text), None, None, way)


def former_name(one: Candidate) -> str:
    """Returns the candidate's name in states of earlier versions."""
    values = dict(one.spec.parameters) if one.spec is not None else {}
    return values.get("wire") or values.get("algorithm") or one.text


def _cost(strategy: KeepsBack) -> Cost | None:
    """Returns the cost of a lossy strategy; None: the model does not know it."""
    if not isinstance(strategy, CSC):
        return None
    wire = 1.0 if strategy.message_wire is None else 0.5
    return Cost(1 if strategy.norms == "previous" else 2, strategy.keep * wire, _CSC_PASSES)
