"""The base of Auto: it steps as the lossy candidate does whose gradients the buckets have brought."""

from __future__ import annotations

import torch

from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch.strategies._auto.plans import Plans
from roundelay.torch.strategies._lossy import sgd_steps
from roundelay.torch.strategies._lossy.kept_back import KeepsBack
from roundelay.torch.strategies._lossy.lossy import Lossy


class CandidateSteps(Strategy):
    """A base. After a lossy plan it goes on as that candidate: its steps of whole gradients are SGD's own."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self._began = False  # the first step of the optimizer, or the first one after attach(), was taken

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Does what the lossy candidate does that the buckets have, or had.

        Before there is one, a masked candidate tells the momentum of decay apart.
        """
        if not self._began:
            self._began = True
            for lossy in self._plans.lossy():
                lossy.begin(optimizer)
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

    def techniques_chosen(self, step: int) -> None:
        """Begins to step as the plan's lossy candidate does: a flush has brought the last one's gradients.

        What that one knows of the momentum would be out of date when it comes again.
        """
        before = self._steps_as
        self._plans.begun(step)
        if before is not self._steps_as and isinstance(self.owner, torch.optim.SGD):
            sgd_steps.forget_parts(self.owner)
