"""Saves and loads the gradients that techniques keep back, for a strategy's ``state_dict()``."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Set
from typing import Any

from roundelay.errors import MismatchError
from roundelay.torch._internal.gradients.gradient import Gradient
from roundelay.torch._internal.gradients.pool_state import PoolOwner, PoolState
from roundelay.torch._internal.optimizer import equality
from roundelay.torch._internal.optimizer.kept_state import (
    KeptState,
    Parameters,
    kept_buckets,
    parameters_of,
)
from roundelay.torch._internal.optimizer.techniques import Techniques


class TechniqueStates:
    """The states of one optimizer's techniques on this rank: its strategy's Keeper (strategy/context.py).

    records: of all gradients of the optimizer; more may come. owner: of the buckets; None: gradients stay
    local, and there is nothing to save.
    """

    def __init__(
        self, techniques: Techniques, records: Mapping[int, Gradient], owner: PoolOwner | None
    ) -> None:
        self._techniques = techniques
        self._records = records
        self._owner = None if owner is None else weakref.ref(owner)
        self.sent = techniques.table.sent  # strategies call it in each step
        self.flush = techniques.flush
        self.residuals = techniques.residuals

    def rescale(self, factor: float) -> None:
        """Multiplies the gradients that techniques keep back on this rank."""
        self._techniques.table.rescale(factor)
        self.residuals.rescale(factor)

    @property
    def step(self) -> int:
        """The number of steps that the optimizer has taken."""
        return self._techniques.step

    def count_from(self, step: int) -> None:
        """Goes on counting from this step."""
        self._techniques.count_from(step)

    def commit(self) -> dict[str, Any]:
        """Returns what this rank needs to go on from here with other ranks; between two steps."""
        return {"step": self._techniques.step, "kept": self.residuals.kept()}

    def restore(self, committed: Mapping[str, Any]) -> None:
        """Goes back to what commit() returned. The next step sends what was kept back."""
        self._techniques.count_from(committed["step"])
        self.residuals.put(committed["kept"])

    def state_dict(self) -> dict[str, Any]:
        """Returns the techniques' state on this rank."""
        techniques, owner = self._techniques, self._pool_owner()
        return KeptState(
            techniques.strategy.text,
            techniques.process_set.rank(),
            techniques.process_set.size(),
            techniques.step,
            self._parameters(),
            PoolState() if owner is None else owner.pool_state(),
            techniques.progress,
            kept_buckets(techniques.table.by_name()),
        ).to_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned, and makes its pool and buckets. It sends no message.

        ValueError, and nothing has changed: it does not fit, or buckets are in use, which may keep gradients
        of other weights back. ValueError or RuntimeError, and nothing is loaded: no such buckets can be made.
        """
        techniques, loaded = self._techniques, self._techniques.loaded
        text = techniques.strategy.text
        if techniques.table.buckets and not loaded.fresh:
            raise ValueError(
                f"strategy {text} takes a state only before the first step: call its flush() "
                "and take a step, give the optimizer to DistributedOptimizer again, and load then"
            )
        kept = KeptState.from_dict(state)
        kept.check(techniques.strategy, techniques.process_set, self._parameters())
        owner = self._pool_owner()
        if owner is not None and owner.in_step():
            raise ValueError("gradients of this step were reduced already: load a state between two steps")
        before = techniques.step
        techniques.count_from(kept.step)
        loaded.making = kept
        try:
            if owner is not None:
                owner.restore_pool(kept.pool)
        except BaseException as error:
            techniques.count_from(before)
            self.forget_loaded()
            if owner is not None:
                owner.restart()
            if not isinstance(error, RuntimeError | MemoryError | ValueError):
                raise
            reason = f"the buckets of this state cannot be made on this rank: {error}"
            raise (ValueError(reason) if isinstance(error, ValueError) else RuntimeError(reason)) from error
        finally:
            loaded.making = None
        loaded.fresh, loaded.digest = True, kept.digest()
        if owner is not None:
            owner.publish()

    def loaded_error(self, submitted: Set[str]) -> MismatchError | None:
        """Returns the error to raise if the ranks have loaded different states. All ranks call it.

        submitted: the names of operations in flight on this rank.
        """
        one = self._techniques
        return equality.loaded_error(
            one.loaded.digest, one.strategy.text, submitted, one.table.prefix, one.process_set
        )

    def forget_loaded(self) -> None:
        """Forgets a loaded state, which does not belong to those of the other ranks."""
        self._techniques.loaded.forget()
        self._techniques.strategy.forget_state()

    def _parameters(self) -> Parameters:
        short = self._techniques.table.short
        return parameters_of((short(one.name), one) for one in self._records.values())

    def _pool_owner(self) -> PoolOwner | None:
        return None if self._owner is None else self._owner()
