"""What a strategy overrides: the questions of DistributedOptimizer, and its calls around a step."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

import torch

from roundelay.torch._internal.operations import Adasum
from roundelay.torch._internal.strategy.bucket import Bucket
from roundelay.torch._internal.strategy.context import Context
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch._internal.tuning.choices import Choices
from roundelay.torch.process_sets import ProcessSet


class Hooks:
    """The part of a strategy that its class overrides, and what it answers otherwise."""

    wire: torch.dtype | None = None  # gradients travel in this type; None: in that of compression=
    reduces_gradients: ClassVar[bool] = True  # False: gradients stay local, and the strategy combines steps
    takes_sparse: bool = True  # False: a sparse gradient is an error, unless it is made dense
    takes_complex: ClassVar[bool] = True  # False: a complex parameter is an error
    takes_weight: bool = False  # True: weight= is right, as each step's gradients are added up in it
    counts_steps: ClassVar[bool] = True  # False: it needs no step() of the optimizer
    shares_parameters: ClassVar[bool] = True  # False: no other wrapped optimizer may have one of them

    _context: Context | None = None
    _optimizer: weakref.ref[torch.optim.Optimizer] | None = None

    @property
    def text(self) -> str:
        """The strategy's name in reports and errors."""
        return type(self).__name__

    @property
    def shown(self) -> str:
        """The same for this rank's user, who can write it again: a library has its file's name."""
        return self.text

    def has_saved(self, text: str) -> bool:
        """Returns whether a state of this strategy has this text, now or in an earlier version."""
        return text == self.text

    @property
    def context(self) -> Context:
        """The context that attach() was given. RuntimeError: DistributedOptimizer has not called it yet."""
        if self._context is None:
            raise RuntimeError(f"strategy {self.text} has no optimizer: give it to DistributedOptimizer")
        return self._context

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Raises ValueError if it cannot work for this optimizer or op. Nothing was changed yet."""
        if op == Adasum:
            raise ValueError(f"op=hvd.Adasum is the strategy 'adasum': it excludes strategy {self.text}")

    def accept_gradients(self, names: Collection[str], passes: int) -> None:
        """Raises ValueError if it cannot work for parameters of these names, or so many passes in a step.

        Called after accept(), and when the number of passes changes. Nothing was changed yet.
        """

    def accept_set(self, process_set: ProcessSet) -> None:
        """Raises ValueError if it cannot work for the ranks of this set. Nothing was changed yet."""

    def accept_closure(self) -> None:
        """Raises ValueError if ``step()`` must not be given a closure. Nothing was changed yet."""

    def accept_end(self) -> None:
        """Raises ValueError, on all ranks, if the optimizer must not get another strategy now."""

    def gradient_set(self) -> ProcessSet | None:
        """Returns the ranks over which gradients are reduced now; None: they stay on this rank.

        It is the context's set, or a part of it. DistributedOptimizer asks after attach(), and when the
        strategy calls ``context.regroup()``, which all ranks of both sets do between the same two steps.
        """
        return self.context.process_set if self.reduces_gradients else None

    @property
    def choices(self) -> Choices | None:
        """The candidates for the optimizer's search (ROUNDELAY_AUTOTUNE chooses sizes); None: it has none."""
        return None

    def own_sets(self) -> Iterable[ProcessSet]:
        """Returns further process sets of this rank that the strategy uses; hvd.join joins them, too."""
        return ()

    def report(self) -> Iterable[str]:
        """Returns lines for hvd.report() about the work of this rank."""
        return ()

    def use_buckets(self, buckets: Sequence[Bucket]) -> None:
        """Takes new buckets. DistributedOptimizer calls it on all ranks, before technique() for these."""

    def technique(self, bucket: Bucket, step: int) -> Spec | None:
        """Returns the technique that the bucket takes in this step; None: a dense allreduce.

        DistributedOptimizer calls it on every rank for each bucket: when buckets are made, and after each
        step. step: the number of steps that the optimizer has taken. The result must be the same on all
        ranks. So it may depend on the bucket, the step, and the arguments of agreed() and use_buckets(), and
        on nothing else. If a bucket leaves a technique with state, a flush step comes first, in which the
        bucket is sent densely.
        """

    def techniques_chosen(self, step: int) -> None:
        """Hears, on all ranks, that the buckets have what technique() has returned for this step.

        It may come steps after the answer has changed, because a flush comes first.
        """

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Works before ``step()``, which calls it when gradients are complete, or before a closure."""

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Works after ``step()``, which calls it at its end."""

    def abandon_step(self) -> None:
        """Undoes before_step() if ``step()`` has raised after it. zero_grad() calls it every time."""

    def propose(self) -> bytes | None:
        """Returns rank 0's proposal to all ranks of the process set, at most 256 bytes; None: it has none.

        Rank 0 is asked at the end of each backward, and repeats a proposal until agreed() gets it.
        """
        return None

    def agreed(self, proposal: bytes) -> None:
        """Takes rank 0's proposal, on all ranks at the end of the same backward."""

    def joined(self, optimizer: torch.optim.Optimizer) -> None:
        """Works when all ranks have joined (hvd.join), maybe after different numbers of steps.

        All ranks of the context's set call it, and may run operations.
        """

    def restart(self) -> None:
        """Begins a new job with the same optimizer: init() was called again. It must run no operation."""

    def layout_will_change(self) -> None:
        """Hears, on all ranks, that gradients move to other buckets. Techniques keep nothing back then."""

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Makes GradScaler's findings (not 0: overflow), by device, equal on all ranks, in place.

        Override it if gradients stay local. Reduced gradients overflow alike anyway.
        """
