"""Operations in flight: what ``synchronize`` returns for each handle."""

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
    """What ``synchronize(handle)`` returns; a function makes it of the outputs that the core allocated."""
    _results[handle] = result
    return handle


def _checked(handle: int) -> int:
    if not isinstance(handle, int) or handle < 0:
        raise ValueError(f"{handle!r} is no handle of an operation in flight")
    return handle


def poll(handle: int) -> bool:
    """Whether ``synchronize(handle)`` would return (or raise) at once. ValueError for an unknown handle."""
    return _core.poll(_checked(handle))


def synchronize(handle: int) -> Any:
    """Sleeps until the operation is done and returns its result; the handle is then unknown.

    The result is what the operation without ``_async`` returns: a tensor; of grouped operations a list; of
    alltoall with splits the output and the received splits. HorovodInternalError if the operation failed,
    ValueError for an unknown handle.
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
    """The job is over: nothing is in flight."""
    _results.clear()
