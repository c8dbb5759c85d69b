"""The strategy that measures other strategies in the running job, and uses the fastest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import torch

from roundelay import _core
from roundelay._internal.spelling.form import cut_list
from roundelay._internal.spelling.reading import write
from roundelay._internal.spelling.table import Loss, kind_of
from roundelay.torch._internal.operations import LINEAR_OPS
from roundelay.torch._internal.strategy.bucket import Bucket
from roundelay.torch._internal.strategy.context import Context
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch._internal.tuning.choices import Choices
from roundelay.torch._internal.tuning.gate import Plan
from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.strategies._auto.candidate_steps import CandidateSteps
from roundelay.torch.strategies._auto.candidates import (
    DENSE_CANDIDATE,
    Candidate,
    candidate,
    check_loss,
    former_name,
    of_loss,
)
from roundelay.torch.strategies._auto.plans import Plans, ways_of


class Auto(CandidateSteps):
    """Tries candidates for a few steps each, and keeps the fastest; bucket by bucket if they lose nothing.

    candidates: texts or objects: "dense" (always one of them), "dense:wire=bf16" or fp16, a dense allreduce
    by one algorithm ("allreduce:algorithm=ring" ...), and lossy strategies: "csc:keep=0.1" or ``CSC(0.1)``.
    Lossy ones are tried only if they are named. Further plans over levels that the job has made
    (ROUNDELAY_FACTORS) join them, and with ROUNDELAY_AUTOTUNE=1 all algorithms, unless
    ROUNDELAY_DETERMINISTIC=1 forbids them. None: those that ``loss`` allows; without it dense and bf16.
    trial_steps: each setting is measured twice, for so many steps. loss: the most that gradients may lose,
    "lossless", "rounding" or "lossy". A candidate that loses more is refused. Without candidates it stands
    for all algorithms; for bf16; or for bf16 and the lossy strategies that take the optimizer.
    On rank 0 the optimizer's search (tuning/pool_tuner.py) chooses by a cost model which candidates are
    worth a trial, measures them, and proposes the next one; all ranks change in the same step. The search
    begins again if steps take another time for long, or if the order of gradients changes.
    ValueError: an argument is wrong.
    """

    def __init__(
        self,
        candidates: Iterable[str | Strategy] | None = None,
        trial_steps: int = 5,
        loss: str | None = None,
    ) -> None:
        self.trial_steps: int = kind_of("auto", "trial_steps").checked("trial_steps", trial_steps)
        self.loss = None if loss is None else kind_of("auto", "loss").checked("loss", loss)
        self._by_loss = candidates is None
        if candidates is None:
            others = of_loss(Loss.ROUNDING.value if loss is None else loss)
        else:
            if isinstance(candidates, str):
                candidates = cut_list(candidates)
            given = [candidates] if isinstance(candidates, Strategy) else list(candidates)
            others = [candidate(each) for each in given]
        if loss is not None:
            check_loss(others, loss)
        every = [DENSE_CANDIDATE, *(each for each in others if each != DENSE_CANDIDATE)]
        if len({each.text for each in every}) != len(every):
            raise ValueError(f"candidates is {candidates!r}, but has one more than once")
        if any(each.lossy is not None for each in every):
            self.takes_sparse = False
        super().__init__(Plans(every, self.trial_steps))

    @property
    def text(self) -> str:
        """Returns a text such as ``auto:candidates=[dense,csc:keep=0.1]``: what is not the default."""
        texts = [] if self._by_loss else self._given_texts()
        return write("auto", {"candidates": texts, "trial_steps": self.trial_steps, "loss": self.loss})

    def _given_texts(self) -> list[str]:
        return [each.text for each in self._plans.candidates[: self._plans.given]]

    def has_saved(self, text: str) -> bool:
        """Returns whether a state has its text, or the one of versions with other names of candidates."""
        return text in (self.text, *self._former_texts())

    def _former_texts(self) -> Iterator[str]:
        """Yields the texts that states had before texts of strategies could stand in lists."""
        if self.loss is None and self._given_texts() == ["dense", "dense:wire=bf16"]:
            yield write("auto", {"trial_steps": self.trial_steps})
        names = [former_name(each) for each in self._plans.candidates[: self._plans.given]]
        yield f"auto of {', '.join(names)} with {self.trial_steps} trial steps"
        yield f"auto:candidates={'+'.join(names)},trial_steps={self.trial_steps}"

    # -- checks and answers for DistributedOptimizer

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Refuses an op whose results cannot be added, and each optimizer that a candidate refuses."""
        super().accept(optimizer, op)
        if op not in LINEAR_OPS:
            raise ValueError(f"strategy {self.text} needs op=hvd.Average or op=hvd.Sum")
        if self._by_loss:
            self._plans.keep(lambda one: _suits(one, optimizer, op))
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
        self._plans.check_ways(found)
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
        candidate = plans.candidates[plans.plan[bucket.index]]
        if candidate.lossy is not None:
            taken = 0 if plans.since is None else max(0, step - plans.since)
            return candidate.lossy.technique(bucket, taken)
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
        self._began = False

    # -- other ranks

    def shared_state(self) -> Any:
        """Returns the plans, and what the lossy candidates know of the optimizer."""
        return self._plans.saved_state()

    def take_shared_state(self, state: Any) -> None:
        """Takes them: gradients that were kept back are stepped alike on all ranks."""
        self._plans.take_state(state)

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


def _suits(one: Candidate, optimizer: torch.optim.Optimizer, op: int) -> bool:
    """Returns whether a candidate that the user has not named may be tried."""
    if one.lossy is None:
        return one.way is None or not _core.config().deterministic
    try:
        one.lossy.accept(optimizer, op)
    except ValueError:
        return False
    return True
