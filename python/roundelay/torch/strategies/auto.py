"""The strategy that measures other strategies in the running job, and uses the fastest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.operations import LINEAR_OPS
from roundelay.torch._internal.strategy.bucket import Bucket
from roundelay.torch._internal.strategy.context import Context
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch._internal.tuning.choices import Choices
from roundelay.torch._internal.tuning.gate import Plan
from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.strategies._auto.candidates import DENSE_CANDIDATE, candidate
from roundelay.torch.strategies._auto.plans import Plans, ways_of
from roundelay.torch.strategies._lossy.kept_back import KeepsBack
from roundelay.torch.strategies._lossy.lossy import Lossy
from roundelay.torch.strategies._shared.numbers import int_from, whole_number

KEYS = ("candidates", "trial_steps")


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
        every = [DENSE_CANDIDATE, *(each for each in others if each != DENSE_CANDIDATE)]
        if len({each.text for each in every}) != len(every):
            raise ValueError(f"candidates is {candidates!r}, but has one more than once")
        if any(each.lossy is not None for each in every):
            self.takes_sparse = False
        self._plans = Plans(every, self.trial_steps)

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
        names = [each.text for each in self._plans.candidates[: self._plans.given]]
        if any(mark in name for name in names for mark in ":,="):
            return f"auto of {', '.join(names)} with {self.trial_steps} trial steps"
        return Spec("auto", candidates=names, trial_steps=self.trial_steps).text

    # -- checks and answers for DistributedOptimizer

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Refuses an op whose results cannot be added, and each optimizer that a candidate refuses."""
        super().accept(optimizer, op)
        if op not in LINEAR_OPS:
            raise ValueError(f"strategy {self.text} needs op=hvd.Average or op=hvd.Sum")
        names = [each.text for each in self._plans.candidates if each.way is not None]
        if names and _core.config().deterministic:
            raise ValueError(
                f"candidate {names[0]!r} adds in another order, which ROUNDELAY_DETERMINISTIC=1 forbids: "
                "leave one of the two out"
            )
        for lossy in self._plans.lossy():
            lossy.accept(optimizer, op)

    def accept_gradients(self, names: Collection[str], passes: int) -> None:
        """Refuses what a candidate refuses."""
        for lossy in self._plans.lossy():
            lossy.accept_gradients(names, passes)

    def accept_set(self, process_set: ProcessSet) -> None:
        """Refuses what a candidate refuses, and further plans over levels where sums must not change."""
        for lossy in self._plans.lossy():
            lossy.accept_set(process_set)
        found = ways_of(process_set)
        if found is not None and found.factors[1:] and _core.config().deterministic:
            raise ValueError(
                f"the plans of ROUNDELAY_FACTORS for strategy {self.text} add in different orders, which "
                "ROUNDELAY_DETERMINISTIC=1 forbids: leave one plan"
            )

    def accept_closure(self) -> None:
        """Refuses what a candidate refuses."""
        for lossy in self._plans.lossy():
            lossy.accept_closure()

    def use_buckets(self, buckets: Sequence[Bucket]) -> None:
        """Takes the plan that was agreed for these buckets; without a plan all are dense."""
        for lossy in self._plans.lossy():
            lossy.use_buckets(buckets)
        self._plans.use_buckets(len(buckets))

    def technique(self, bucket: Bucket, step: int) -> Spec | None:
        """Returns the technique of the bucket's candidate in the plan."""
        plans = self._plans
        plans.step = step
        candidate = plans.candidates[plans.plan[bucket.index]]
        if candidate.lossy is not None:
            return candidate.lossy.technique(bucket, max(0, step - plans.since))
        return candidate.spec

    # -- the search of the optimizer

    @property
    def choices(self) -> Choices:
        """Returns its plans: its candidates are a part of the search."""
        return self._plans

    @property
    def choice(self) -> str:
        """The search's choice and its reason, on rank 0."""
        return self._plans.choice

    @property
    def plan(self) -> Plan:
        """The number of the candidate that each bucket uses now. Alike on all ranks."""
        return self._plans.plan

    def propose(self) -> bytes | None:
        """Returns rank 0's next plan."""
        return None if self._plans.wanted is None else self._plans.proposal()

    def agreed(self, proposal: bytes) -> None:
        """Takes rank 0's plan, now or with the next buckets."""
        self._plans.agreed(proposal)

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
        masked = (one for one in self._plans.lossy() if isinstance(one, Lossy) and one.momentum == "masked")
        return self._plans.last_lossy if self._plans.last_lossy is not None else next(masked, None)

    # -- its candidates

    def attach(self, optimizer: torch.optim.Optimizer, context: Context) -> None:
        """Becomes the strategy of the optimizer, and so do the lossy candidates."""
        super().attach(optimizer, context)
        self._plans.add_ways(context.process_set)
        for lossy in self._plans.lossy():
            lossy.attach(optimizer, context)

    def detach(self) -> None:
        """Stops being an optimizer's strategy."""
        for lossy in self._plans.lossy():
            lossy.detach()
        super().detach()
        self._plans.forget()

    # -- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's gradients that are kept back, the plans, and the candidates' states.

        What has joined the candidates is dense there: another job may not have it.
        """
        return {**super().state_dict(), **self._plans.saved_state()._asdict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned. The candidates are tried again after the first step."""
        before, given = self._plans.state(), self._plans.checked(state)
        if given is None:
            raise ValueError(f"this is no state of strategy {self.text}: load what its state_dict() returned")
        try:
            self._plans.take_state(given._replace(next=()))  # the buckets that are made now have the plan
            super().load_state_dict(state)
        except BaseException:
            self._plans.take_state(before)
            raise
        self._plans.follow_with(given.next)

    def forget_state(self) -> None:
        """Forgets what load_state_dict() took: all buckets are dense again."""
        self._plans.forget()
        for lossy in self._plans.lossy():
            lossy.forget_state()
