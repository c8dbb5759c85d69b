"""The state of models, optimizers and samplers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.global_state import rank
from roundelay.torch._internal.progress_sampler import ProgressSampler
from roundelay.torch._internal.strategy.attached import attached
from roundelay.torch.elastic.copies import copied
from roundelay.torch.elastic.divergence import warn_of_divergence
from roundelay.torch.elastic.objects import ObjectState, State
from roundelay.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)

__all__ = ["ObjectState", "State", "TorchState"]


# Ends the names of what modules' get_extra_state() returns: any objects, and often copies.
_EXTRA = "_extra_state"


class Handler(ABC):
    """Keeps commits of one object with a ``state_dict``."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value
        self._saved: Any = None
        self.save()

    def save(self) -> None:
        """Copies the state, into the memory of the last copy where that fits."""
        self._saved = copied(self.value.state_dict(), self._saved)

    def restore(self) -> None:
        """Goes back to the last save(). The object keeps its copy: a training step may change it in place."""
        self.value.load_state_dict(copied(self._saved))

    def saved(self) -> Any:
        """Returns the copy, for another process."""
        return self._saved

    def take_saved(self, saved: Any) -> None:
        """Takes what saved() returned in another process."""
        self._saved = saved

    @abstractmethod
    def sync(self, root: int) -> None:
        """Gives every rank the root's state; collective."""

    def leave_generation(self) -> None:  # noqa: B027  most objects are alike on all ranks
        """Prepares for other ranks; collective, while all old ones are there."""


def _drop_gradients(parameters: Iterable[torch.Tensor]) -> None:
    """Drops the gradients of steps that are taken back. zero_grad() would wait for the lost job."""
    for parameter in parameters:
        parameter.grad = None


class _Model(Handler):
    def restore(self) -> None:
        """Goes back to the last save(), without gradients."""
        super().restore()
        _drop_gradients(self.value.parameters())

    def sync(self, root: int) -> None:
        state = self.value.state_dict()
        extra = {name: one for name, one in state.items() if name.endswith(_EXTRA)}
        tensors = {name: one for name, one in state.items() if name not in extra}
        broadcast_parameters(tensors, root_rank=root)
        extra = broadcast_object(extra, root_rank=root, name=f"elastic.model.{self.name}")
        if extra and rank() != root:
            self.value.load_state_dict({**tensors, **extra})


class _Optimizer(Handler):
    """The strategy of a wrapped optimizer has a state of its own, on each rank."""

    def save(self) -> None:
        """Copies the state, and what the strategy has."""
        super().save()
        strategy = attached.get(self.value)
        self._committed = None if strategy is None else strategy.commit()

    def restore(self) -> None:
        """Goes back to the last save(): without gradients, and without groups that were added since."""
        groups = self.value.param_groups
        _drop_gradients(one for group in groups for one in group["params"])
        del groups[len(self._saved["param_groups"]) :]
        super().restore()
        strategy = attached.get(self.value)
        if strategy is not None and self._committed is not None:
            strategy.restore(self._committed)

    def saved(self) -> Any:
        """Returns the copies of both."""
        return self._saved, self._committed

    def take_saved(self, saved: Any) -> None:
        """Takes both."""
        self._saved, self._committed = saved

    def begin(self, root: int, newest: bool, lost: list[int]) -> None:
        """Gives the strategy the ranks of now; collective. lost: those that kept gradients back, too."""
        strategy = attached.get(self.value)
        if strategy is None:
            return
        kept_back = strategy.begin_generation(self.value, root, newest)
        if kept_back and lost and rank() == 0:
            _core.log_warning(
                f"strategy {strategy.text}: what these ranks of the last generation have kept back of their "
                f"gradients is lost: {', '.join(map(str, lost))}"
            )

    def sync(self, root: int) -> None:
        broadcast_optimizer_state(self.value, root_rank=root)


class _Sampler(Handler):
    """What any rank has seen of the epoch is seen."""

    def leave_generation(self) -> None:
        """Takes in what the other ranks have seen: those that leave cannot say it later."""
        self.sync(0)

    def sync(self, root: int) -> None:
        states = allgather_object(self.value.state_dict(), name=f"elastic.sampler.{self.name}")
        epoch = states[root]["epoch"]
        seen = {index for state in states if state["epoch"] == epoch for index in state["processed_indices"]}
        self.value.load_state_dict({"epoch": epoch, "processed_indices": sorted(seen)})


class _Stateful(Handler):
    """Anything else with state_dict() and load_state_dict()."""

    def sync(self, root: int) -> None:
        found = broadcast_object(self.value.state_dict(), root_rank=root, name=f"elastic.state.{self.name}")
        self.value.load_state_dict(found)


_HANDLERS: list[tuple[type, type[Handler]]] = [
    (torch.nn.Module, _Model),
    (torch.optim.Optimizer, _Optimizer),
    (ProgressSampler, _Sampler),
]


def _handler(name: str, value: Any) -> Handler | None:
    for kind, handler in _HANDLERS:
        if isinstance(value, kind):
            return handler(name, value)
    stateful = callable(getattr(value, "state_dict", None)) and callable(
        getattr(value, "load_state_dict", None)
    )
    return _Stateful(name, value) if stateful else None


class TorchState(ObjectState):
    """State of models, optimizers, samplers, whatever else has a ``state_dict``, and of objects.

    Each argument becomes an attribute. model, optimizer: the common case; others come by keyword, in the same
    order on all ranks. Models keep their parameters' memory when they are restored.
    """

    _handlers: dict[str, Handler]

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        named = {"model": model, "optimizer": optimizer, **kwargs}
        handlers = {name: handler for name, value in named.items() if (handler := _handler(name, value))}
        object.__setattr__(self, "_handlers", handlers)
        super().__init__(**{name: value for name, value in named.items() if name not in handlers})

    def __getattr__(self, name: str) -> Any:
        handlers = self.__dict__.get("_handlers", {})
        if name in handlers:
            return handlers[name].value
        raise AttributeError(f"this state has no {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._handlers:
            self._handlers[name].value = value
            self._handlers[name].save()
        else:
            super().__setattr__(name, value)

    def save(self) -> None:
        """Copies everything."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Goes back to the last save()."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def saved(self) -> Any:
        """Returns the copies of everything."""
        return super().saved(), {name: handler.saved() for name, handler in self._handlers.items()}

    def take_saved(self, saved: Any) -> None:
        """Takes another process's copies, and goes back to them."""
        attributes, of_handlers = saved
        for name, handler in self._handlers.items():
            handler.take_saved(of_handlers[name])
        super().take_saved(attributes)

    def leave_generation(self) -> None:
        """Has samplers take in what all ranks have seen."""
        for handler in self._handlers.values():
            handler.leave_generation()

    def prepare_sync(self, root: int, newest: bool, lost: list[int]) -> None:
        """Gives strategies the ranks of now, in the order of the arguments: some merge weights.

        Afterwards all ranks with the newest commit should have the same ones.
        """
        for handler in self._handlers.values():
            if isinstance(handler, _Optimizer):
                handler.begin(root, newest, lost)
                warn_of_divergence(handler.value, handler.name, newest and self._commits > 0)

    def sync_from(self, root: int) -> None:
        """Gives every rank the root's state; of samplers, what all ranks have seen."""
        for handler in self._handlers.values():
            handler.sync(root)
            handler.save()
        super().sync_from(root)

    def reset(self) -> None:
        """Divides what samplers have left over the ranks of now."""
        for handler in self._handlers.values():
            if isinstance(handler.value, ProgressSampler):
                handler.value.reset()
