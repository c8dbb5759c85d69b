"""Operations in flight: remembers the result of each handle for ``synchronize``."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from roundelay import _core
from roundelay.errors import HorovodInternalError

Result = torch.Tensor | list[torch.Tensor] | Callable[[list[torch.Tensor]], Any]

_results: dict[int, Result] = {}


def remember(handle: int, result: Result) -> int:
    """Stores the result of ``synchronize(handle)``: a value, or a function of the core's outputs."""
    _results[handle] = result
    return handle


def _checked(handle: int) -> int:
    if not isinstance(handle, int) or handle < 0:
        raise ValueError(f"{handle!r} is no handle of an operation in flight")
    return handle


def poll(handle: int) -> bool:
    """Returns whether ``synchronize(handle)`` would not wait. ValueError for an unknown handle."""
    return _core.poll(_checked(handle))


def synchronize(handle: int) -> Any:
    """Sleeps until the operation is done and returns its result; the handle is then unknown.

    The operation without ``_async`` returns the same: a tensor; a list for grouped operations. alltoall_async
    gives the output and the received splits, also without splits. HorovodInternalError if the operation
    failed, ValueError for an unknown handle.
    """
    _checked(handle)
    try:
        outputs = _core.synchronize(handle)
    except HorovodInternalError:
        _results.pop(handle, None)
        raise
    result = _results.pop(handle)
    return result(outputs) if isinstance(result, FunctionType) else result


def forget_handles() -> None:
    """Forgets all handles. ``shutdown`` calls it, after which nothing is in flight."""
    _results.clear()
