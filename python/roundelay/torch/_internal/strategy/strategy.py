"""The base of strategies: a strategy chooses each bucket's technique, and works before and after a step.

The core applies a technique to a full bucket instead of one allreduce (csrc/compress). A strategy says which
bucket takes which technique. It works on all ranks of its process set. On a set of one rank
DistributedOptimizer calls none of its functions.

If a technique does not apply, the core reduces densely, alike on all ranks, and leaves the technique's state
as it is: while a rank has joined (``hvd.join``), in a second backward before ``step()``, if only a part of a
bucket is ready (unused layers), and if gradients lie outside the pool (docs/gradient_pool.md).
"""

from __future__ import annotations

import weakref
from collections.abc import Collection
from typing import Any, ClassVar

import torch

from roundelay.torch._internal.strategy.context import Context, Keeper
from roundelay.torch._internal.strategy.generations import Generations
from roundelay.torch.process_sets import ProcessSet


class Strategy(Generations):
    """The base of all strategies. It sends every bucket densely; override what you need of ``Hooks``.

    All ranks make the same strategy with the same parameters, and each optimizer has one of its own.
    """

    # Of technique, propose and joined, those that the class overrides: DistributedOptimizer calls no others.
    overrides: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        calls = ("technique", "propose", "joined")
        cls.overrides = frozenset(name for name in calls if getattr(cls, name) is not getattr(Strategy, name))

    # -- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's state, to be loaded on the same rank of a job of the same size.

        Call it between steps. A strategy with a state of its own adds it to the base's.
        """
        return self._kept().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned, bit for bit. All ranks call it, before the first step.

        It makes the buckets of the state, and asks technique() for them: a strategy with a state of its own
        takes that first. It sends no message. Ranks whose states do not belong together get a MismatchError
        in the first backward.

        ValueError: it is the state of another rank, model, world size or strategy, or buckets are in use.
        RuntimeError: there is no memory for its buckets; nothing is loaded.
        """
        self._kept().load_state_dict(state)

    def forget_state(self) -> None:
        """Forgets what load_state_dict() took. All ranks call it if theirs do not belong together."""

    # -- to call

    def flush(self) -> None:
        """Makes the next step send all gradients that techniques keep back; they keep nothing after it.

        If a layer has no gradient in that step, a RuntimeWarning says so, and a later step sends the rest.
        Every rank calls it, between two steps. Call it a step before a checkpoint that shall do without
        state_dict(), and before the optimizer gets another strategy. If GradScaler skips that step, the
        gradients that were kept back are lost: they were sent with the infinite ones.
        """
        self._kept().flush()

    def rescale(self, factor: float) -> None:
        """Multiplies the gradients that techniques keep back by a factor: the loss has a new scale.

        The factor is the same on all ranks.

        GradScaler's update() calls it. Call it between two steps.
        """
        self._kept().rescale(factor)

    def _kept(self) -> Keeper:
        return self.context.keeper()

    # -- for DistributedOptimizer

    def check(
        self,
        optimizer: torch.optim.Optimizer,
        op: int,
        predivide_factor: float,
        names: Collection[str],
        passes: int,
        process_set: ProcessSet,
    ) -> None:
        """Raises ValueError if it cannot be this optimizer's, with these arguments."""
        if self.owner is not None and self.owner is not optimizer:
            raise ValueError(f"strategy {self.text} belongs to another optimizer: make one for each")
        if predivide_factor != 1.0 and not self.reduces_gradients:
            raise ValueError(
                f"gradient_predivide_factor has no meaning with strategy {self.text}: leave it out"
            )
        self.accept(optimizer, op)
        self.accept_gradients(names, passes)
        self.accept_set(process_set)

    @property
    def owner(self) -> torch.optim.Optimizer | None:
        """The optimizer whose strategy it is."""
        return self._optimizer() if self._optimizer is not None else None

    def attach(self, optimizer: torch.optim.Optimizer, context: Context) -> None:
        """Becomes the strategy of the optimizer. All ranks of the set call it, and may run operations."""
        self._optimizer, self._context = weakref.ref(optimizer), context

    def detach(self) -> None:
        """Stops being an optimizer's strategy."""
        self._optimizer = self._context = None
