"""What a hook keeps back on one rank, as a dict for a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from roundelay.torch._internal.strategy.strategy import Strategy

_FORMAT = 1


@dataclass(frozen=True)
class Saved:
    """The state of one rank. It belongs to parameters, whatever DDP's buckets are."""

    strategy: str  # its text
    rank: int
    world_size: int
    step: int
    kept: dict[str, torch.Tensor]  # by the parameters' names

    def to_dict(self) -> dict[str, Any]:
        """Returns plain containers and tensors, which torch.save takes."""
        return {"format": _FORMAT, **vars(self)}

    @classmethod
    def from_dict(cls, state: Any) -> Saved:
        """Reads what to_dict() returned. ValueError: it is something else."""
        if not isinstance(state, Mapping) or state.get("format") != _FORMAT:
            raise ValueError(f"this is no state of a hook of format {_FORMAT}")
        try:
            return cls(**{key: value for key, value in state.items() if key != "format"})
        except TypeError as error:
            raise ValueError(f"this state of a hook is incomplete: {error}") from error

    def check(self, strategy: Strategy, group: dist.ProcessGroup, names: Mapping[str, torch.Tensor]) -> None:
        """Raises ValueError if it is the state of another strategy, rank, world size or model."""
        for what, theirs, ours in (
            ("strategy", self.strategy, strategy.text),
            ("world size", self.world_size, group.size()),
            ("rank", self.rank, group.rank()),
        ):
            if theirs != ours:
                raise ValueError(f"this state is of {what} {theirs}, and this is {ours}")
        for name, value in self.kept.items():
            if name not in names or names[name].shape != value.shape:
                raise ValueError(
                    f"this state has parameter {name!r} of shape {list(value.shape)}, and the hook's "
                    "named_parameters have none such"
                )
