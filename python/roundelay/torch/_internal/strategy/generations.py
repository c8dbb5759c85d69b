"""What a strategy does when the ranks of an elastic job change: between two generations (docs/elastic.md)."""

from __future__ import annotations

from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.strategy.hooks import Hooks
from roundelay.torch.functions import broadcast_object


class Generations(Hooks):
    """The part of a strategy that goes on with other ranks. The elastic state of its optimizer calls it.

    A rank that was there before calls leave_generation() if nobody is lost, otherwise restore(); then, with
    the ranks of now, join_generation(). All ranks, also new ones, call begin_generation(). The loop is
    torch/elastic/loop.py.
    """

    def commit(self) -> Any:
        """Returns what this rank needs to go on from here with other ranks, between two steps."""
        return {**self.context.keeper().commit(), "shared": self.shared_state()}

    def restore(self, committed: Any) -> None:
        """Goes back to what commit() returned."""
        self.take_shared_state(committed["shared"])
        self.context.keeper().restore(committed)

    def shared_state(self) -> Any:
        """Returns what all ranks have alike, and a new one needs."""
        return None

    def take_shared_state(self, state: Any) -> None:
        """Takes what shared_state() returned on another rank, or earlier."""

    def leave_generation(self) -> None:
        """Prepares for other ranks while all are there, who call it between the same two steps."""
        self.restore(self.commit())

    def join_generation(self) -> None:
        """Finds the ranks of now. All call it that were there before; new ones call attach() instead."""

    def begin_generation(self, optimizer: torch.optim.Optimizer, root: int, newest: bool) -> bool:
        """Begins with the ranks of now; collective. Returns whether some rank's gradients were kept back.

        root: a rank that has the newest commit. newest: this rank has it, too; what another one has kept
        back belongs to an older step, and is lost.
        """
        process_set = self.context.process_set
        if not process_set.included():
            return False
        residuals = self.context.keeper().residuals
        if not newest:
            residuals.put({})
        if root not in process_set.ranks:
            root = process_set.ranks[0]
        mine = None
        if _core.rank() == root:
            mine = list(residuals.flushed()), self.context.keeper().step, self.shared_state()
        name = self.context.name("strategy.generation")
        names, step, shared = broadcast_object(mine, root, name, process_set)
        residuals.flush(names)
        self.context.keeper().count_from(step)
        self.take_shared_state(shared)
        return bool(names)

    def lost_with_this_rank(self) -> str:
        """Returns what of the gradients that were kept back is lost if this rank leaves; empty: nothing."""
        kept = [part for _, part in self.context.keeper().residuals.kept().values()]
        elements = sum(int(part.count_nonzero()) for part in kept)
        if elements == 0:
            return ""
        norm = torch.stack([part.double().norm().cpu() for part in kept]).norm()
        return f"{elements} elements, of norm {norm:.3g}"
