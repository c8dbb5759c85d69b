"""Training on uneven data: ``with hvd.join_context(optimizer):`` around the loop."""

from __future__ import annotations

from types import TracebackType

import torch

from roundelay.torch._internal import operations
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from roundelay.torch.process_sets import ProcessSet, global_process_set


class join_context:  # noqa: N801  used as a function
    """Ranks that run out of data join at the end of the ``with`` block, and wait there for the others.

    Meanwhile the others train on. Gradients are still divided by the number of all ranks; a rank that has
    joined adds zero. After the block ``last_rank`` is the rank that joined last, on all ranks. It has taken
    all steps: ``broadcast_parameters(model.state_dict(), context.last_rank)`` and
    ``broadcast_optimizer_state(optimizer, context.last_rank)`` give their results to all, and a GradScaler
    needs its state, too. Gradients of a window of accumulation that a rank has not ended are dropped. An
    exception in the block is raised, and this rank does not join.

    The ranks of the optimizers' process set join; without optimizers, all ranks. ValueError: an optimizer
    that DistributedOptimizer has not wrapped, or optimizers of several sets.
    """

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.last_rank: int | None = None
        self._process_set: ProcessSet = global_process_set
        for number, optimizer in enumerate(optimizers):
            wrapper = wrapper_of(optimizer)
            if wrapper is None:
                raise ValueError(
                    f"join_context got a {type(optimizer).__name__} that DistributedOptimizer has not wrapped"
                )
            if number > 0 and wrapper.process_set is not self._process_set:
                raise ValueError(
                    f"join_context got optimizers of {self._process_set} and {wrapper.process_set}: use one "
                    "block for each set"
                )
            self._process_set = wrapper.process_set

    def __enter__(self) -> join_context:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self._process_set.included():
            self.last_rank = operations.join(process_set=self._process_set)
