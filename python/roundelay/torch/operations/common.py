"""What all operations check before they begin."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch

from roundelay import _core
from roundelay.errors import HorovodInternalError
from roundelay.torch.process_sets import ProcessSet, member_id

Average, Sum, Adasum, Min, Max, Product = range(6)
LINEAR_OPS = (Average, Sum)
OP_NAMES = ("Average", "Sum", "Adasum", "Min", "Max", "Product")


def _users_level() -> int:
    """For a warning of this function's caller: how far up the code outside this package is."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("roundelay."):
        level, frame = level + 1, frame.f_back
    return level


def checked_op(op: int | None, average: bool | None) -> int:
    """``op`` with Horovod's deprecated ``average`` folded in. ValueError: both given, or no such op."""
    if op is not None and average is not None:
        raise ValueError("give either op or the deprecated average, not both")
    if average is not None:
        text = "average is deprecated: use op=hvd.Average or op=hvd.Sum"
        warnings.warn(text, DeprecationWarning, stacklevel=_users_level())
        return Average if average else Sum
    if op is None:
        return Average
    if not isinstance(op, int) or isinstance(op, bool) or not 0 <= op < len(OP_NAMES):
        raise ValueError(f"op is {op!r}, but must be one of hvd.{', hvd.'.join(OP_NAMES)}")
    return op


def check_compression(compression: Any) -> None:
    """It has what a Compressor has."""
    if not (callable(getattr(compression, "compress", None)) and hasattr(compression, "decompress")):
        raise ValueError(
            f"compression is {compression!r}, but must have compress and decompress, such as "
            "hvd.Compression.fp16"
        )


def _check_initialized() -> None:
    """HorovodInternalError before ``init``, as operations of Horovod's raise; all else raises ValueError."""
    try:
        _core.size()
    except ValueError as error:
        raise HorovodInternalError(str(error)) from None


def _check_utf8(name: str, operation: str) -> None:
    """The peers read names as UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{operation}: name {name!r} has no form in UTF-8 (a lone surrogate); choose another"
        ) from None


class Call:
    """One call of an operation, while its arguments are checked.

    A check that fails inside ``with`` is passed on to the peers, which would otherwise wait for this rank.
    """

    __slots__ = ("group", "name", "operation", "shown")

    def __init__(
        self, operation: str, name: str | None, process_set: ProcessSet, shown: str | None = None
    ) -> None:
        """``operation`` is what the peers wait for; ``shown`` what the user called, where that is another."""
        _check_initialized()
        self.group = member_id(process_set)
        if name is not None and not isinstance(name, str):
            raise ValueError(f"{shown or operation}: name must be a str or None, not {name!r}")
        if name is not None and not name.isascii():
            _check_utf8(name, shown or operation)
        self.operation, self.name, self.shown = operation, name, shown or operation

    def __enter__(self) -> Call:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None and _core.is_initialized():
            _core.submit_error(self.operation, self.name, str(error), self.group)

    def wrong(self, text: str) -> ValueError:
        """The error that says so, and in which call."""
        return ValueError(f"{self.shown}{f' of {self.name!r}' if self.name else ''}: {text}")

    def check_tensor(self, tensor: torch.Tensor) -> None:
        """It is one; the core checks what kind."""
        if not isinstance(tensor, torch.Tensor):
            raise self.wrong(f"a torch.Tensor is needed, not {type(tensor).__name__}")
        if tensor.is_mkldnn:  # few functions of torch take one
            raise self.wrong("the tensor is in MKL-DNN's layout; pass tensor.to_dense()")

    def check_rows(self, tensor: torch.Tensor) -> None:
        """It is a tensor, and has a first dimension."""
        self.check_tensor(tensor)
        if tensor.dim() == 0:
            raise self.wrong("the tensor has no dimensions; pass tensor.unsqueeze(0)")

    def checked_group(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors of a grouped operation as a list."""
        if not isinstance(tensors, list | tuple):
            raise self.wrong(f"a list or tuple of tensors is needed, not {type(tensors).__name__}")
        for tensor in tensors:
            self.check_tensor(tensor)
        return list(tensors)

    def checked_reduction(
        self, tensors: Sequence[torch.Tensor], op: int | None, average: bool | None = None
    ) -> int:
        """The op, which is one for these dtypes."""
        try:
            number = checked_op(op, average)
        except ValueError as error:
            raise self.wrong(str(error)) from None
        for tensor in tensors:
            if number == Average and tensor.dtype == torch.bool:
                raise self.wrong("bool tensors have no Average; use op=hvd.Max for any, hvd.Min for all")
            if number == Adasum and not tensor.dtype.is_floating_point:
                raise self.wrong(f"op=hvd.Adasum is for floating point tensors, not {tensor.dtype}")
        return number

    def checked_factors(self, prescale_factor: Any, postscale_factor: Any) -> tuple[float, float]:
        """Both as finite floats."""
        return self._factor("prescale_factor", prescale_factor), self._factor(
            "postscale_factor", postscale_factor
        )

    def _factor(self, which: str, value: Any) -> float:
        try:
            factor = float(value)
        except (TypeError, ValueError, RuntimeError):
            factor = math.nan
        if not math.isfinite(factor):
            raise self.wrong(f"{which} is {value!r}, but must be a finite number")
        return factor

    def check_compression(self, compression: Any) -> None:
        """It has what a Compressor has."""
        try:
            check_compression(compression)
        except ValueError as error:
            raise self.wrong(str(error)) from None


def row_of_this_rank(*numbers: int) -> torch.Tensor:
    """The rank and the numbers: gathered rows must say whose they are, as joined ranks have none."""
    return torch.tensor([[_core.rank(), *numbers]], dtype=torch.int64, device="cpu")


def never_empty(group: list[torch.Tensor]) -> list[torch.Tensor]:
    """An empty group travels as a tensor without elements: ranks whose groups differ must get an error."""
    return group or [torch.empty(0, device="cpu")]


_One = TypeVar("_One")


def by_device(pairs: Iterable[tuple[torch.Tensor, _One]]) -> list[list[_One]]:
    """What belongs to tensors of one device together, as an operation needs it; each in the order given."""
    parts: dict[torch.device, list[_One]] = {}
    for tensor, one in pairs:
        parts.setdefault(tensor.device, []).append(one)
    return list(parts.values())


def exact_gradients() -> bool:
    """Whether gradients are those of the sum of all ranks' losses; else they are Horovod's."""
    return _core.config().exact_gradients


def gradient_name(name: str | None) -> str | None:
    """Of the operation in the backward of one called ``name``."""
    return f"{name}.gradient" if name else None


def recorded(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """Runs it so that autograd knows of it."""
    return function.apply(*arguments)
