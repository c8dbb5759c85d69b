"""The candidates of strategy auto: what each does to a bucket, and what the cost model knows of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from roundelay.torch._internal.tuning.gate import DENSE_COST, Cost
from roundelay.torch._internal.tuning.trial_steps import UNCOUNTED_LOSSY
from roundelay.torch._internal.tuning.ways import OWN, Way, Ways
from roundelay.torch.strategies._lossy.kept_back import KeepsBack
from roundelay.torch.strategies._shared.wires import WIRES
from roundelay.torch.strategies.csc import CSC
from roundelay.torch.strategies.protocol import Strategy
from roundelay.torch.strategies.spec import Spec
from roundelay.torch.strategies.text import parse
from roundelay.tuning.file import ALGORITHMS

_HALF = Cost(1, 0.5, 1.5)  # reads four bytes and writes two, and the reverse: three quarters of a copy each
_CSC_PASSES = 3  # gradient and residual, norms; gather and scatter of the chosen


class Candidate(NamedTuple):
    """A candidate. At most one of ``lossy`` and ``way`` is given."""

    text: str
    spec: Spec | None  # the technique of all buckets; None: it is dense, or ``lossy`` chooses it
    lossy: KeepsBack | None  # the strategy, if it keeps gradients back
    own_cost: Cost | None  # for the cost model; None: the model does not know it, or ``way`` has it
    way: Way | None = None  # the way of a dense allreduce

    def cost(self, ways: Ways | None) -> Cost | None:
        """Returns its cost; None: the model does not know it. ways: None: those of its ranks are unknown."""
        return self.own_cost if self.way is None or ways is None else ways.cost(self.way)


DENSE_CANDIDATE = Candidate("dense", None, None, DENSE_COST)


def candidate(given: str | Strategy) -> Candidate:
    """Returns the candidate of a name, a text or an object. ValueError: it is none."""
    if isinstance(given, str):
        if WIRES.get(given) is not None:
            return Candidate(given, Spec("half", wire=given), None, _HALF)
        if given in ALGORITHMS["allreduce"]:
            return Candidate(given, Spec("allreduce", algorithm=given), None, None, Way(given))
    strategy = parse(given) if isinstance(given, str) else given
    if not isinstance(strategy, Strategy):
        raise ValueError(f"candidate {given!r} is no strategy and no text of one")
    if strategy.text == DENSE_CANDIDATE.text:
        return DENSE_CANDIDATE
    if not isinstance(strategy, KeepsBack):
        raise ValueError(
            f"candidate {strategy.text!r} cannot be switched on and off: candidates are dense, "
            f"{', '.join(name for name, wire in WIRES.items() if wire is not None)}, algorithms and lossy "
            "strategies"
        )
    if strategy.warmup_steps > UNCOUNTED_LOSSY:
        raise ValueError(
            f"candidate {strategy.text!r} has a warmup of {strategy.warmup_steps} steps, which is not over "
            f"when its trial is measured: give it a warmup of at most {UNCOUNTED_LOSSY} steps"
        )
    return Candidate(strategy.text, None, strategy, _cost(strategy))


def of_plans(ways: Ways) -> list[Candidate]:
    """Returns those of the plans over levels that a search may try, beside the job's own one: ``2x4``."""
    return [
        Candidate(
            "x".join(map(str, factors)),
            Spec("allreduce", algorithm=OWN, factors=list(map(str, factors))),
            None,
            None,
            Way(OWN, factors),
        )
        for factors in ways.factors[1:]
    ]


def of_algorithms(ways: Ways, named: Collection[str]) -> list[Candidate]:
    """Returns those of the algorithms that are not named yet; none on a single node, which has one way."""
    others = [name for name in ALGORITHMS["allreduce"] if name not in named] if ways.algorithm else []
    return [candidate(name) for name in others]


def _cost(strategy: KeepsBack) -> Cost | None:
    """Returns the cost of a lossy strategy; None: the model does not know it."""
    if not isinstance(strategy, CSC):
        return None
    wire = 1.0 if strategy.message_wire is None else 0.5
    return Cost(1 if strategy.norms == "previous" else 2, strategy.keep * wire, _CSC_PASSES)
