"""Methods that one optimizer object has and its copies do not."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from roundelay.torch._internal.untraced import untraced


def _inert(*_: Any, **__: Any) -> None:
    """Does nothing: the methods of a copied or unpickled optimizer."""


class BoundMethod:
    """A method of one optimizer object. It does nothing on copies of the object."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = untraced(call)
        self.__doc__ = call.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the method."""
        return self._call(*args, **kwargs)

    def __reduce__(self) -> str | tuple[Any, ...]:
        return BoundMethod, (_inert,)

    def __deepcopy__(self, _: Any) -> BoundMethod:
        return BoundMethod(_inert)


class GainedMethods:
    """The methods that one optimizer object has gained, beside its class's. It does not keep it alive."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = weakref.ref(optimizer)
        self.names: list[str] = []

    def add(self, name: str, method: Callable[..., Any]) -> None:
        """Gives the object a method that takes no ``self``."""
        setattr(self._optimizer(), name, BoundMethod(method))
        self.names.append(name)

    def extend(
        self,
        name: str,
        method: Callable[..., Any],
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Gives the object a method that takes it as ``self``, with calls before and after it."""
        owner = self._optimizer

        def extended(*args: Any, **kwargs: Any) -> Any:
            if before is not None:
                before()
            result = method(owner(), *args, **kwargs)
            if after is not None:
                after()
            return result

        extended.__doc__ = method.__doc__
        self.add(name, extended)

    def take_away(self, optimizer: torch.optim.Optimizer) -> None:
        """Leaves the object the methods of its class."""
        for name in self.names:
            optimizer.__dict__.pop(name, None)
