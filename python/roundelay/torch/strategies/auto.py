"""The strategy that measures other strategies in the running job, and uses the fastest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from roundelay import _core
from roundelay.torch._internal.operations import LINEAR_OPS
from roundelay.torch._internal.tuning import ways
from roundelay.torch._internal.tuning.gate import DENSE, MOST_MIXED, Cost, Plan
from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.strategies._auto.candidates import DENSE_CANDIDATE, candidate, of_algorithms, of_plans
from roundelay.torch.strategies._lossy.kept_back import KeepsBack
from roundelay.torch.strategies._lossy.lossy import Lossy
from roundelay.torch.strategies._shared.numbers import int_from, whole_number
from roundelay.torch.strategies._shared.state_format import is_of_former_format
from roundelay.torch.strategies.protocol import Bucket, Choices, Context, Strategy
from roundelay.torch.strategies.spec import Spec

KEYS = ("candidates", "trial_steps")
_STEP_BYTES = 8


class Auto(Strategy):
    """Tries candidates for a few steps each, and keeps the fastest; bucket by bucket if they lose nothing.

    candidates: names, texts or objects: "dense" (always one of them), "bf16", "fp16", the algorithms of a
    dense allreduce ("ring", "halving_doubling" ...), and lossy strategies: "csc:keep=0.1" or ``CSC(0.1)``.
    Lossy ones are tried only if they are named. Further plans over levels that the job has made
    (ROUNDELAY_FACTORS) join them, and with ROUNDELAY_AUTOTUNE=1 all algorithms, unless
    ROUNDELAY_DETERMINISTIC=1 forbids them. trial_steps: each setting is measured twice, for so many steps.
    On rank 0 the optimizer's search (tuning/pool_tuner.py) chooses by a cost model which candidates are
    worth a trial, measures them, and proposes the next one; all ranks change in the same step. The search
    begins again if steps take another time for long, or if the order of gradients changes.
    ValueError: an argument is wrong.
    """

    def __init__(
        self, candidates: Iterable[str | Strategy] = ("dense", "bf16"), trial_steps: int = 5
    ) -> None:
        self.trial_steps = whole_number("trial_steps", trial_steps, 1)
        given = [candidates] if isinstance(candidates, str | Strategy) else list(candidates)
        others = [candidate(each) for each in given]
        self._candidates = [DENSE_CANDIDATE, *(each for each in others if each != DENSE_CANDIDATE)]
        twice = {each.text for each in self._candidates}
        if len(twice) != len(self._candidates):
            raise ValueError(f"candidates is {candidates!r}, but has one more than once")
        if any(each.lossy is not None for each in self._candidates):
            self.takes_sparse = False
        self._named = len(self._candidates)  # before those of further plans
        self._ways: ways.Ways | None = None  # None: unknown for the optimizer's process set
        self._lossy: KeepsBack | None = None  # the last one that was in use
        self._plan: Plan = ()  # the number of each bucket's candidate; the same on all ranks
        self._since = 0  # the step from which the plan is in use
        self._next: Plan = ()  # the agreed plan for the next buckets
        self._step = 0
        self._wanted: tuple[Plan, bool] | None = None  # rank 0's: a plan, and whether it is for new buckets
        self.choice = "dense: nothing was tried yet"  # the search's choice and its reason, on rank 0

    @classmethod
    def from_text(cls, **given: str) -> Auto:
        """Makes a strategy from its arguments as text. ValueError: one is wrong."""
        arguments: dict[str, Any] = {}
        if "candidates" in given:
            arguments["candidates"] = given["candidates"].split("+")
        if "trial_steps" in given:
            arguments["trial_steps"] = int_from("trial_steps", given["trial_steps"])
        return cls(**arguments)

    @property
    def text(self) -> str:
        """Returns a text such as ``auto of dense, bf16``; --strategy takes it if candidates are names."""
        names = [each.text for each in self._candidates[: self._named]]
        if any(mark in name for name in names for mark in ":,="):
            return f"auto of {', '.join(names)} with {self.trial_steps} trial steps"
        return Spec("auto", candidates=names, trial_steps=self.trial_steps).text

    # -- checks and answers for DistributedOptimizer

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Refuses an op whose results cannot be added, and each optimizer that a candidate refuses."""
        super().accept(optimizer, op)
        if op not in LINEAR_OPS:
            raise ValueError(f"strategy {self.text} needs op=hvd.Average or op=hvd.Sum")
        names = [each.text for each in self._candidates if each.way is not None]
        if names and _core.config().deterministic:
            raise ValueError(
                f"candidate {names[0]!r} adds in another order, which ROUNDELAY_DETERMINISTIC=1 forbids: "
                "leave one of the two out"
            )
        for lossy in self._all_lossy():
            lossy.accept(optimizer, op)

    def accept_gradients(self, names: Collection[str], passes: int) -> None:
        """Refuses what a candidate refuses."""
        for lossy in self._all_lossy():
            lossy.accept_gradients(names, passes)

    def accept_set(self, process_set: ProcessSet) -> None:
        """Refuses what a candidate refuses, and further plans over levels where sums must not change."""
        for lossy in self._all_lossy():
            lossy.accept_set(process_set)
        found = _ways_of(process_set)
        if found is not None and found.factors[1:] and _core.config().deterministic:
            raise ValueError(
                f"the plans of ROUNDELAY_FACTORS for strategy {self.text} add in different orders, which "
                "ROUNDELAY_DETERMINISTIC=1 forbids: leave one plan"
            )

    def accept_closure(self) -> None:
        """Refuses what a candidate refuses."""
        for lossy in self._all_lossy():
            lossy.accept_closure()

    def use_buckets(self, buckets: Sequence[Bucket]) -> None:
        """Takes the plan that was agreed for these buckets; without a plan all are dense."""
        for lossy in self._all_lossy():
            lossy.use_buckets(buckets)
        if self._next:
            self._take(_fitted(self._next, len(buckets)))
        elif len(self._plan) != len(buckets):
            self._plan = (DENSE,) * len(buckets)
        self._next, self._wanted = (), None

    def technique(self, bucket: Bucket, step: int) -> Spec | None:
        """Returns the technique of the bucket's candidate in the plan."""
        self._step = step
        candidate = self._candidates[self._plan[bucket.index]]
        if candidate.lossy is not None:
            return candidate.lossy.technique(bucket, max(0, step - self._since))
        return candidate.spec

    # -- the search of the optimizer

    @property
    def choices(self) -> Choices:
        """Returns itself: its candidates are a part of the search."""
        return self

    @property
    def costs(self) -> Sequence[Cost | None]:
        """The candidates' costs, dense first; None: the model does not know the candidate."""
        return [each.cost(self._ways) for each in self._candidates]

    @property
    def mixed(self) -> Sequence[bool]:
        """False for lossy candidates, which take all buckets."""
        return [each.lossy is None for each in self._candidates]

    @property
    def plan(self) -> Plan:
        """The number of the candidate that each bucket uses now. Alike on all ranks."""
        return self._plan

    def named(self, plan: Plan) -> str:
        """Names a plan: ``bf16``, or ``bf16 for 3 of 4 buckets``."""
        counts = {number: plan.count(number) for number in plan}
        if len(counts) == 1:
            return self._candidates[plan[0]].text
        parts = [f"{self._candidates[n].text} for {count}" for n, count in counts.items() if n != DENSE]
        return f"{' and '.join(parts)} of {len(plan)} buckets"

    def want(self, plan: Plan, new_buckets: bool) -> None:
        """Proposes a plan to all ranks, for the present buckets or for the next ones."""
        self._wanted = (plan, new_buckets) if new_buckets or plan != self._plan else None

    # -- agreement

    def propose(self) -> bytes | None:
        """Returns rank 0's next plan."""
        if self._wanted is None:
            return None
        plan, new_buckets = self._wanted
        return self._step.to_bytes(_STEP_BYTES, "big") + bytes([new_buckets, *plan[:MOST_MIXED]])

    def agreed(self, proposal: bytes) -> None:
        """Takes rank 0's plan, now or with the next buckets, which may wait for a flush."""
        self._since = int.from_bytes(proposal[:_STEP_BYTES], "big")
        new_buckets, own = proposal[_STEP_BYTES], tuple(proposal[_STEP_BYTES + 1 :])
        self._wanted = None
        if new_buckets:
            self._next = own
        else:
            self._take(_fitted(own, len(self._plan)))

    def _take(self, plan: Plan) -> None:
        self._plan = plan
        used = [self._candidates[number].lossy for number in plan]
        self._lossy = next((lossy for lossy in used if lossy is not None), self._lossy)

    # -- around the step

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Does what the lossy candidate does that is in use, or was: a flush may bring its last gradients.

        Before there is one, a masked candidate tells the momentum of decay apart.
        """
        if self._steps_as is not None:
            self._steps_as.before_step(optimizer)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Works as that candidate."""
        if self._steps_as is not None:
            self._steps_as.after_step(optimizer)

    def abandon_step(self) -> None:
        """Works as that candidate."""
        if self._steps_as is not None:
            self._steps_as.abandon_step()

    @property
    def _steps_as(self) -> KeepsBack | None:
        masked = (one for one in self._all_lossy() if isinstance(one, Lossy) and one.momentum == "masked")
        return self._lossy if self._lossy is not None else next(masked, None)

    # -- its candidates

    def _all_lossy(self) -> list[KeepsBack]:
        return [each.lossy for each in self._candidates if each.lossy is not None]

    def attach(self, optimizer: torch.optim.Optimizer, context: Context) -> None:
        """Becomes the strategy of the optimizer, and so do the lossy candidates."""
        super().attach(optimizer, context)
        self._ways = _ways_of(context.process_set)
        self._candidates = self._candidates[: self._named]
        if self._ways is not None:
            self._candidates += of_plans(self._ways)
            if _core.config().autotune and not _core.config().deterministic:
                self._candidates += of_algorithms(self._ways, [each.text for each in self._candidates])
        for lossy in self._all_lossy():
            lossy.attach(optimizer, context)

    def detach(self) -> None:
        """Stops being an optimizer's strategy."""
        for lossy in self._all_lossy():
            lossy.detach()
        super().detach()
        self._plan, self._next, self._wanted, self._lossy = (), (), None, None

    # -- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's gradients that are kept back, the plans, and the candidates' states.

        What has joined the candidates is dense there: another job may not have it.
        """
        own = self._own_state()
        plan, following = (
            [number if number < self._named else DENSE for number in each] for each in (own.plan, own.next)
        )
        return {**super().state_dict(), **own._replace(plan=plan, next=following)._asdict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned. The candidates are tried again after the first step."""
        before, given = self._own_state(), self._checked(state)
        try:
            self._take_own_state(given._replace(next=()))  # the buckets that are made now have the plan
            super().load_state_dict(state)
        except BaseException:
            self._take_own_state(before)
            raise
        self._next = tuple(given.next)

    def _own_state(self) -> _OwnState:
        every = self._all_lossy()
        last = None if self._lossy is None else every.index(self._lossy)
        own = [lossy.own_state() for lossy in every]
        return _OwnState(self._plan, self._next, self._since, last, own)

    def _take_own_state(self, own: _OwnState) -> None:
        every = self._all_lossy()
        for lossy, state in zip(every, own.candidates, strict=True):
            lossy.take_own_state(state)
        self._plan, self._next, self._since = tuple(own.plan), tuple(own.next), own.since
        self._lossy = None if own.last is None else every[own.last]

    def _checked(self, state: Any) -> _OwnState:
        """Returns its own part of a state. ValueError: it has none."""
        every = self._all_lossy()
        if is_of_former_format(state):
            state = {**self._own_state()._asdict(), "last": self._first_lossy(state.get("plan")), **state}
        try:
            own = _OwnState(**{key: state[key] for key in _OwnState._fields})
            known = all(number in range(self._named) for number in (*own.plan, *own.next))
            known = known and (own.last is None or own.last in range(len(every)))
            known = known and len(own.candidates) == len(every) and isinstance(own.since, int)
        except (KeyError, TypeError):
            known = False
        if not known:
            raise ValueError(f"this is no state of strategy {self.text}: load what its state_dict() returned")
        return own

    def _first_lossy(self, plan: Any) -> int | None:
        """Returns the number of the lossy candidate that a plan has."""
        every = self._all_lossy()
        planned = [self._candidates[number].lossy for number in plan or () if number in range(self._named)]
        return next((every.index(one) for one in planned if one is not None), None)

    def forget_state(self) -> None:
        """Forgets what load_state_dict() took: all buckets are dense again."""
        self._plan, self._next, self._since, self._wanted, self._lossy = (), (), 0, None, None
        for lossy in self._all_lossy():
            lossy.forget_state()


class _OwnState(NamedTuple):
    """The part of a state that the techniques do not have."""

    plan: Sequence[int]
    next: Sequence[int]
    since: int
    last: int | None  # the number of the lossy candidate that was the last one in use
    candidates: list[dict[str, Any]]  # the own states of the lossy candidates


def _fitted(plan: Plan, buckets: int) -> Plan:
    """Returns a proposed plan for `buckets` buckets. Above MOST_MIXED buckets, all take one candidate."""
    return plan[:buckets] + plan[-1:] * (buckets - len(plan))


def _ways_of(process_set: ProcessSet) -> ways.Ways | None:
    """Returns the ways of an allreduce of these ranks; None: they are not all of the job, and unknown."""
    return ways.of_job() if process_set.size() == _core.size() else None
