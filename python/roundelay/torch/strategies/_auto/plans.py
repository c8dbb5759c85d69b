"""Which candidate each bucket has, and the next plan that rank 0 wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from roundelay import _core
from roundelay.torch._internal.strategy.state_format import is_of_former_format
from roundelay.torch._internal.tuning import ways
from roundelay.torch._internal.tuning.gate import DENSE, MOST_MIXED, Cost, Plan
from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.strategies._auto.candidates import Candidate, algorithm_candidates, plan_candidates
from roundelay.torch.strategies._lossy.kept_back import KeepsBack


class Plans:
    """The plans of one Auto. They are the Choices of the optimizer's search (tuning/choices.py).

    candidates: dense first. Those of further ways of an allreduce follow the given ones.
    """

    def __init__(self, candidates: Sequence[Candidate], trial_steps: int) -> None:
        self.candidates = list(candidates)
        self.given = len(self.candidates)  # before those of further ways
        self.trial_steps = trial_steps
        self.choice = "dense: nothing was tried yet"  # the search's choice and its reason, on rank 0
        self.plan: Plan = ()  # the number of each bucket's candidate; the same on all ranks
        self.since: int | None = None  # the step from which the buckets have it; None: a flush comes first
        self.last_lossy: KeepsBack | None = None  # the last one that buckets had
        self._ways: ways.Ways | None = None  # None: unknown for the optimizer's process set
        self._next: Plan = ()  # the agreed plan for the next buckets
        self.wanted: tuple[Plan, bool] | None = None  # rank 0's: a plan, and whether it is for new buckets

    # -- candidates

    def lossy(self) -> list[KeepsBack]:
        """Returns the strategies of the lossy candidates."""
        return [each.lossy for each in self.candidates if each.lossy is not None]

    def keep(self, wanted: Callable[[Candidate], bool]) -> None:
        """Leaves candidates out that are not wanted. Before there is a plan."""
        self.candidates = [each for each in self.candidates if wanted(each)]
        self.given = len(self.candidates)

    def check_ways(self, found: ways.Ways | None) -> None:
        """Raises ValueError if a candidate is a plan over levels that the job has not made."""
        made = [] if found is None else found.factors
        for each in self.candidates[: self.given]:
            if each.way is not None and each.way.factors and each.way.factors not in made:
                raise ValueError(
                    f"candidate {each.text!r} is no plan over levels of this job: name it in "
                    "ROUNDELAY_FACTORS"
                )

    def add_ways(self, process_set: ProcessSet) -> None:
        """Makes the further ways of these ranks candidates, in place of those of other ranks."""
        self._ways = ways_of(process_set)
        self.candidates = self.candidates[: self.given]
        if self._ways is not None:
            named = [each.text for each in self.candidates]
            self.candidates += [each for each in plan_candidates(self._ways) if each.text not in named]
            if _core.config().autotune and not _core.config().deterministic:
                self.candidates += algorithm_candidates(self._ways, [each.text for each in self.candidates])

    # -- the search

    @property
    def costs(self) -> Sequence[Cost | None]:
        """The candidates' costs, dense first; None: the model does not know the candidate."""
        return [each.cost(self._ways) for each in self.candidates]

    @property
    def mixed(self) -> Sequence[bool]:
        """False for lossy candidates, which take all buckets."""
        return [each.lossy is None for each in self.candidates]

    def named(self, plan: Plan) -> str:
        """Names a plan: ``bf16``, or ``bf16 for 3 of 4 buckets``."""
        counts = {number: plan.count(number) for number in plan}
        if len(counts) == 1:
            return self.candidates[plan[0]].text
        parts = [f"{self.candidates[n].text} for {count}" for n, count in counts.items() if n != DENSE]
        return f"{' and '.join(parts)} of {len(plan)} buckets"

    def want(self, plan: Plan, new_buckets: bool) -> None:
        """Proposes a plan to all ranks, for the present buckets or for the next ones."""
        self.wanted = (plan, new_buckets) if new_buckets or plan != self.plan else None

    # -- agreement

    def proposal(self) -> bytes | None:
        """Returns rank 0's next plan."""
        if self.wanted is None:
            return None
        plan, new_buckets = self.wanted
        return bytes([new_buckets, *plan[:MOST_MIXED]])

    def agreed(self, proposal: bytes) -> None:
        """Takes rank 0's plan, now or with the next buckets, which may wait for a flush."""
        new_buckets, *own = proposal
        self.wanted = None
        if new_buckets:
            self._next = tuple(own)
        else:
            self._take(_fitted(tuple(own), len(self.plan)))

    def use_buckets(self, number: int) -> None:
        """Takes the plan that was agreed for these buckets; without a plan all are dense."""
        if self._next:
            self._take(_fitted(self._next, number))
        elif len(self.plan) != number:
            self.plan = (DENSE,) * number
        self._next, self.wanted = (), None

    def _take(self, plan: Plan) -> None:
        self.plan, self.since = plan, None

    def begun(self, step: int) -> None:
        """Notes that the buckets have the plan from this step on."""
        if self.since is not None:
            return
        self.since = step
        used = [self.candidates[number].lossy for number in self.plan]
        self.last_lossy = next((lossy for lossy in used if lossy is not None), self.last_lossy)

    def forget(self) -> None:
        """Makes all buckets dense again."""
        self.plan, self._next, self.since, self.wanted, self.last_lossy = (), (), None, None, None

    # -- checkpoints

    def state(self) -> PlanState:
        """Returns what take_state() takes back."""
        every = self.lossy()
        last = None if self.last_lossy is None else every.index(self.last_lossy)
        own = [lossy.own_state() for lossy in every]
        return PlanState(self.plan, self._next, self.since, last, own)

    def saved_state(self) -> PlanState:
        """Returns the same for another job: further ways, which that may not have, are dense."""
        own = self.state()
        plan, following = (
            [number if number < self.given else DENSE for number in each] for each in (own.plan, own.next)
        )
        return own._replace(plan=plan, next=following)

    def take_state(self, own: PlanState) -> None:
        """Takes back what state() returned."""
        every = self.lossy()
        for lossy, state in zip(every, own.candidates, strict=True):
            lossy.take_own_state(state)
        self.plan, self._next, self.since = tuple(own.plan), tuple(own.next), own.since
        self.last_lossy = None if own.last is None else every[own.last]

    def follow_with(self, plan: Sequence[int]) -> None:
        """Makes this the plan of the next buckets."""
        self._next = tuple(plan)

    def checked(self, state: Any) -> PlanState | None:
        """Returns the part of a strategy's state that it has saved; None: the state has no such part."""
        every = self.lossy()
        if is_of_former_format(state):
            state = {**self.state()._asdict(), "last": self._first_lossy(state.get("plan")), **state}
        try:
            own = PlanState(**{key: state[key] for key in PlanState._fields})
            known = all(number in range(self.given) for number in (*own.plan, *own.next))
            known = known and (own.last is None or own.last in range(len(every)))
            known = known and len(own.candidates) == len(every) and isinstance(own.since, int | None)
        except (KeyError, TypeError):
            return None
        return own if known else None

    def _first_lossy(self, plan: Any) -> int | None:
        """Returns the number of the lossy candidate that a plan has."""
        every = self.lossy()
        planned = [self.candidates[number].lossy for number in plan or () if number in range(self.given)]
        return next((every.index(one) for one in planned if one is not None), None)


class PlanState(NamedTuple):
    """The part of Auto's state that the techniques do not have."""

    plan: Sequence[int]
    next: Sequence[int]
    since: int | None
    last: int | None  # the number of the lossy candidate that was the last one in use
    candidates: list[dict[str, Any]]  # the own states of the lossy candidates


def _fitted(plan: Plan, buckets: int) -> Plan:
    """Returns a proposed plan for `buckets` buckets. Above MOST_MIXED buckets, all take one candidate."""
    return plan[:buckets] + plan[-1:] * (buckets - len(plan))


def ways_of(process_set: ProcessSet) -> ways.Ways | None:
    """Returns the ways of an allreduce of these ranks; None: they are not all of the job, and unknown."""
    return ways.of_job() if process_set.size() == _core.size() else None
