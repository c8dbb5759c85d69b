"""The base of strategies whose ranks keep back a shard of their node's gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roundelay.torch.strategies.nodes import Levels
from roundelay.torch.strategies.protocol import Strategy


class NodeShards(Strategy):
    """A base, named before KeepsBack: a state fits only a rank that has the same place in such a node."""

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
        levels = Levels.of(self.context.process_set)
        return [levels.place, levels.members]
