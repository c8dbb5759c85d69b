"""Methods that one optimizer object has and its copies do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
