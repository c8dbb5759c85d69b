"""The strategy that measures other strategies in the running job, and uses the fastest."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from roundelay import _core
from roundelay.torch.measure import Span
from roundelay.torch.operations import LINEAR_OPS
from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.strategies.csc import CSC
from roundelay.torch.strategies.dense import WIRES
from roundelay.torch.strategies.gate import DENSE, Cost, Plan, Rated, Rates, Watch, worth_trying
from roundelay.torch.strategies.kept_back import KeepsBack, int_from, whole_number
from roundelay.torch.strategies.protocol import Bucket, Context, Spec, Strategy
from roundelay.torch.tuning import calibration
from roundelay.torch.tuning.trials import Trials

KEYS = ("candidates", "trial_steps")
_STEP_BYTES = 8
_MOST_BUCKETS = 248  # that have a choice of their own; later buckets have that of the last of these
_UNCOUNTED = 2  # the first steps of a trial, which do not count
_UNCOUNTED_LOSSY = 6  # the same after a technique that keeps gradients back: it takes some flush steps
_WORTH = 0.01  # another plan must save this share of dense steps' time
_COPIED_BYTES = 4 << 20


class _Candidate(NamedTuple):
    text: str
    spec: Spec | None  # the technique of all buckets; None: it is dense, or ``lossy`` chooses it
    lossy: KeepsBack | None  # the strategy, if it keeps gradients back
    cost: Cost | None  # for the cost model; None: the model does not know it


class Auto(Strategy):
    """Tries candidates for a few steps each, and keeps the fastest; bucket by bucket where they lose nothing.

    candidates: names, texts or objects: "dense" (always one), "bf16", "fp16", and lossy ones, which must
    be named: "csc:keep=0.1" or ``CSC(0.1)``. trial_steps: steps that count for each plan, twice. Rank 0
    chooses by a cost model what is worth a trial, measures, and proposes; all change in the same step. It
    tries again if steps take another time for long, or buckets change. ValueError: an argument is wrong.
    """

    def __init__(
        self, candidates: Iterable[str | Strategy] = ("dense", "bf16"), trial_steps: int = 5
    ) -> None:
        self.trial_steps = whole_number("trial_steps", trial_steps, 1)
        given = [candidates] if isinstance(candidates, str | Strategy) else list(candidates)
        others = [_candidate(each) for each in given]
        self._candidates = [_DENSE, *(each for each in others if each.text != _DENSE.text)]
        twice = {each.text for each in self._candidates}
        if len(twice) != len(self._candidates):
            raise ValueError(f"candidates is {candidates!r}, but has one more than once")
        if any(each.lossy is not None for each in self._candidates):
            self.takes_sparse = False
        self._lossy: KeepsBack | None = None  # the last one that was in use
        self._sizes: tuple[int, ...] = ()  # bytes of each bucket
        self._plan: Plan = ()  # the number of each bucket's candidate; the same on all ranks
        self._since = 0  # the step from which the plan is in use
        self._step = 0
        self._trials: Trials[Rated] | None = None  # on rank 0, as all that follows
        self._searched = False
        self._wanted: Plan | None = None
        self._watch: Watch | None = None
        self._last_end = 0.0
        self.choice = "dense: nothing was tried yet"  # what was chosen and why; on rank 0

    @classmethod
    def from_text(cls, **given: str) -> Auto:
        """Makes one of the texts of its arguments. ValueError: one is wrong."""
        arguments: dict[str, Any] = {}
        if "candidates" in given:
            arguments["candidates"] = given["candidates"].split("+")
        if "trial_steps" in given:
            arguments["trial_steps"] = int_from("trial_steps", given["trial_steps"])
        return cls(**arguments)

    @property
    def text(self) -> str:
        """Returns for example ``auto of dense, bf16``; with names alone it is a text of --strategy."""
        names = [each.text for each in self._candidates]
        if any(mark in name for name in names for mark in ":,="):
            return f"auto of {', '.join(names)} with {self.trial_steps} trial steps"
        return Spec("auto", candidates=names, trial_steps=self.trial_steps).text

    # -- what it is asked

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Refuses an op whose results cannot be added, and what a candidate refuses."""
        super().accept(optimizer, op)
        if op not in LINEAR_OPS:
            raise ValueError(f"strategy {self.text} needs op=hvd.Average or op=hvd.Sum")
        for lossy in self._all_lossy():
            lossy.accept(optimizer, op)

    def accept_gradients(self, names: Collection[str], passes: int) -> None:
        """Refuses what a candidate refuses."""
        for lossy in self._all_lossy():
            lossy.accept_gradients(names, passes)

    def accept_set(self, process_set: ProcessSet) -> None:
        """Refuses what a candidate refuses."""
        for lossy in self._all_lossy():
            lossy.accept_set(process_set)

    def accept_closure(self) -> None:
        """Refuses what a candidate refuses."""
        for lossy in self._all_lossy():
            lossy.accept_closure()

    def use_buckets(self, buckets: Sequence[Bucket]) -> None:
        """Begins anew: with dense buckets, and a search after the first step."""
        for lossy in self._all_lossy():
            lossy.use_buckets(buckets)
        self._sizes = tuple(bucket.bytes for bucket in buckets)
        if len(self._plan) != len(buckets):
            self._plan = (DENSE,) * len(buckets)
        self._trials = self._wanted = self._watch = None
        self._searched = False

    def technique(self, bucket: Bucket, step: int) -> Spec | None:
        """Returns that of the bucket's candidate in the plan."""
        self._step = step
        candidate = self._candidates[self._plan[bucket.index]]
        if candidate.lossy is not None:
            return candidate.lossy.technique(bucket, max(0, step - self._since))
        return candidate.spec

    # -- agreement

    def propose(self) -> bytes | None:
        """Returns rank 0's next plan."""
        if self._wanted is None:
            return None
        own = self._wanted[:_MOST_BUCKETS]
        return self._step.to_bytes(_STEP_BYTES, "big") + bytes(own)

    def agreed(self, proposal: bytes) -> None:
        """Takes rank 0's plan."""
        self._since = int.from_bytes(proposal[:_STEP_BYTES], "big")
        own = tuple(proposal[_STEP_BYTES:])
        self._plan = own + own[-1:] * (len(self._sizes) - len(own))
        self._wanted = None
        used = [self._candidates[number].lossy for number in self._plan]
        self._lossy = next((lossy for lossy in used if lossy is not None), self._lossy)

    # -- around the step

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Works as the lossy candidate that is in use, or was: its last gradients may come in a flush."""
        if self._lossy is not None:
            self._lossy.before_step(optimizer)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Works as that candidate, and measures the step on rank 0."""
        if self._lossy is not None:
            self._lossy.after_step(optimizer)
        if self.context.process_set.rank() == 0 and self._sizes:
            self._measure(time.perf_counter())

    def abandon_step(self) -> None:
        """Works as that candidate."""
        if self._lossy is not None:
            self._lossy.abandon_step()

    def _measure(self, now: float) -> None:
        duration, self._last_end = now - self._last_end, now
        if self._trials is None:
            if not self._searched or (self._watch is not None and self._watch.step_over(duration)):
                self._begin()
            return
        wanted = self._trials.current.plan
        over = self._trials.step_over(self._plan == wanted, now)
        chosen = self._keep(self._trials) if over else self._trials.current.plan
        self._wanted = chosen if chosen != self._plan else None

    def _begin(self) -> None:
        """Starts a search, on rank 0."""
        self._searched, self._watch = True, None
        costs = [each.cost for each in self._candidates]
        mixed = [each.lossy is None for each in self._candidates]
        plans = worth_trying(self._sizes, costs, mixed, self._rates())
        if len(plans) > 1:
            uncounted = _UNCOUNTED_LOSSY if self._all_lossy() else _UNCOUNTED
            self._trials = Trials(plans, 2 * self.trial_steps, uncounted)

    def _keep(self, trials: Trials[Rated]) -> Plan:
        """Ends a search, on rank 0; returns the plan to use from now on."""
        dense, best = trials.tried[0], trials.fastest()
        pays = best.median < dense.median * (1 - _WORTH)
        kept = best if pays else dense
        measured = ", ".join(f"{self._named(t.candidate.plan)} {1e3 * t.median:.1f} ms" for t in trials.tried)
        name = self._named(kept.candidate.plan)
        self.choice = f"{name}{'' if pays else ': nothing pays here'} ({measured} a step)"
        _core.log_info(f"strategy auto keeps {self.choice}")
        Span(f"strategy auto keeps {self.choice}").end()
        self._trials, self._watch = None, Watch(kept.median)
        return kept.candidate.plan

    def _named(self, plan: Plan) -> str:
        """Names a plan: ``bf16``, or ``bf16 for 3 of 4 buckets``."""
        counts = {number: plan.count(number) for number in plan}
        if len(counts) == 1:
            return self._candidates[plan[0]].text
        parts = [f"{self._candidates[n].text} for {count}" for n, count in counts.items() if n != DENSE]
        return f"{' and '.join(parts)} of {len(plan)} buckets"

    def _rates(self) -> Rates | None:
        """Returns what was measured; None: nothing was, as the pool is small or on a GPU."""
        link = calibration.known(self.context.process_set)
        if link is None:
            return None
        source = torch.empty(_COPIED_BYTES, dtype=torch.uint8)
        target = torch.empty_like(source)
        target.copy_(source)  # touches the memory
        begin = time.perf_counter()
        target.copy_(source)
        return Rates(link.alpha, link.beta, _COPIED_BYTES / (time.perf_counter() - begin))

    # -- its candidates

    def _all_lossy(self) -> list[KeepsBack]:
        return [each.lossy for each in self._candidates if each.lossy is not None]

    def attach(self, optimizer: torch.optim.Optimizer, context: Context) -> None:
        """Becomes the strategy of the optimizer, and so do the lossy candidates."""
        super().attach(optimizer, context)
        for lossy in self._all_lossy():
            lossy.attach(optimizer, context)

    def detach(self) -> None:
        """Stops being an optimizer's strategy."""
        for lossy in self._all_lossy():
            lossy.detach()
        super().detach()
        self._plan, self._sizes, self._lossy = (), (), None

    def state_dict(self) -> dict[str, Any]:
        """Returns what is kept back, and the plan."""
        return {**super().state_dict(), "plan": list(self._plan), "since": self._since}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned. The plan is tried again after the first step."""
        super().load_state_dict(state)
        plan = state.get("plan")
        if not isinstance(plan, list) or any(number not in range(len(self._candidates)) for number in plan):
            raise ValueError(f"this is no state of strategy {self.text}")
        self._plan, self._since = tuple(plan), int(state["since"])
        used = [self._candidates[number].lossy for number in self._plan]
        self._lossy = next((lossy for lossy in used if lossy is not None), None)


_DENSE = _Candidate("dense", None, None, Cost(1, 1, 0))
_HALF = Cost(1, 0.5, 1.5)  # reads four bytes and writes two, and the reverse: three quarters of a copy each
_CSC_PASSES = 3  # gradient and residual, norms; gather and scatter of the chosen


def _candidate(given: str | Strategy) -> _Candidate:
    """Returns a candidate. ValueError: it is none."""
    from roundelay.torch.strategies.text import parse

    if isinstance(given, str) and given in WIRES and WIRES[given] is not None:
        return _Candidate(given, Spec("half", wire=given), None, _HALF)
    strategy = parse(given) if isinstance(given, str) else given
    if not isinstance(strategy, Strategy):
        raise ValueError(f"candidate {given!r} is no strategy and no text of one")
    if strategy.text == _DENSE.text:
        return _DENSE
    if not isinstance(strategy, KeepsBack):
        raise ValueError(
            f"candidate {strategy.text!r} cannot be switched on and off: candidates are dense, "
            f"{', '.join(name for name, wire in WIRES.items() if wire is not None)} and lossy strategies"
        )
    return _Candidate(strategy.text, None, strategy, _cost(strategy))


def _cost(strategy: KeepsBack) -> Cost | None:
    """Returns the cost of a lossy strategy; None: the model does not know it."""
    if not isinstance(strategy, CSC):
        return None
    wire = 1.0 if strategy.message_wire is None else 0.5
    return Cost(1 if strategy.norms == "previous" else 2, strategy.keep * wire, _CSC_PASSES)
