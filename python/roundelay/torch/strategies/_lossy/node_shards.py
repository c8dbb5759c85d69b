"""The base of strategies whose ranks keep back a shard of their node's gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from roundelay.torch._internal.nodes import Levels
from roundelay.torch._internal.strategy.strategy import Strategy


class NodeShards(Strategy):
    """A base, which a class names before KeepsBack. A state fits a rank of the same place in such a node."""

    _on_gpu = False  # whether the parameters are

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Notes where the parameters are: GPUs may have other levels than CPUs."""
        super().accept(optimizer, op)
        devices = {one.device.type for group in optimizer.param_groups for one in group["params"]}
        self._on_gpu = bool(devices - {"cpu"})

    def levels(self) -> Levels:
        """Returns the nodes, as the techniques of these gradients see them."""
        return Levels.of(self.context.process_set, self._on_gpu)

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's state, and its place in its node, on which its shard depends."""
        return {**super().state_dict(), "in_node": self._in_node()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned. ValueError besides: this rank has another place now."""
        found = state.get("in_node") if isinstance(state, Mapping) else None
        if found is not None and list(found) != self._in_node():
            (theirs, of_theirs), (ours, of_ours) = found, self._in_node()
            raise ValueError(
                f"this state is of rank {theirs} of {of_theirs} in a node, and this is rank {ours} of "
                f"{of_ours}: what is kept back belongs to a part of a node's gradients; start the ranks in "
                "the order of the job that saved it"
            )
        super().load_state_dict(state)

    def _in_node(self) -> list[int]:
        levels = self.levels()
        return [levels.place, levels.members]
