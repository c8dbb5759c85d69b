"""The states of elastic training, which is not in this version."""

from __future__ import annotations

from roundelay.torch.elastic.absent import Absent

__all__ = ["ObjectState", "State", "TorchState"]


class State(Absent):
    """State that elastic training keeps and restores: making one raises NotInThisVersionError."""


class ObjectState(State):
    """State of Python objects: making one raises NotInThisVersionError."""


class TorchState(ObjectState):
    """State of models and optimizers: making one raises NotInThisVersionError."""
