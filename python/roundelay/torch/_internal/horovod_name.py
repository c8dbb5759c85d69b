"""Horovod's name in the class of a wrapped optimizer, where Roundelay stands in for Horovod.

Lightning wraps each optimizer whose class is not called after Horovod, and others look for the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from roundelay import horovod_shim

_MODULE = "horovod.torch.optimizer"


def _called(call: Callable[..., Any], *arguments: Any) -> Any:
    """Makes an unpickled object."""
    return call(*arguments)


@cache
def _named(kind: type) -> type:
    """Returns a subclass that has the name of ``kind`` and Horovod's module."""

    def reduced(self: Any, protocol: Any) -> Any:
        """Makes copies and pickles plain: they are of the original class."""
        result: Any = super(named, self).__reduce_ex__(protocol)  # type: ignore[arg-type]
        if isinstance(result, str):
            return result
        call, arguments, *rest = result
        plain = (kind if each is named else each for each in arguments)
        return _called, (call, *plain), *rest  # pickle would compare an object's class with __newobj__'s

    attributes = {"__module__": _MODULE, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    named = type(kind.__name__, (kind,), {**attributes, "__reduce_ex__": reduced})
    return named


def plain_kind(optimizer: torch.optim.Optimizer) -> type:
    """Returns the class that the optimizer had before it was wrapped."""
    kind = type(optimizer)
    return kind.__base__ or kind if kind.__module__ == _MODULE else kind


def put_on(optimizer: torch.optim.Optimizer) -> None:
    """Gives a wrapped optimizer a class of Horovod's name, if this process imports Roundelay as Horovod."""
    if horovod_shim.in_use():
        optimizer.__class__ = _named(plain_kind(optimizer))


def take_off(optimizer: torch.optim.Optimizer) -> None:
    """Gives an optimizer its former class, when it is not wrapped any more."""
    optimizer.__class__ = plain_kind(optimizer)
