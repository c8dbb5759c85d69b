"""Checks the arguments of operations; helpers that several operations share."""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch

from roundelay import _core
from roundelay.errors import HorovodInternalError
from roundelay.torch._internal.unfit import wrong_tensor
from roundelay.torch._internal.unreduced import unreduced
from roundelay.torch.compression import Compressor
from roundelay.torch.process_sets import ProcessSet, member_id

Average, Sum, Adasum, Min, Max, Product = range(6)
LINEAR_OPS = (Average, Sum)
OP_NAMES = ("Average", "Sum", "Adasum", "Min", "Max", "Product")

ScaledOp = tuple[int, float, float]  # op, prescale factor, postscale factor


def _users_level() -> int:
    """Returns the stack level of the first caller outside this package, for a warning of the caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("roundelay."):
        level, frame = level + 1, frame.f_back
    return level


def checked_op(op: int | None, average: bool | None) -> int:
    """Returns the op that ``op`` or Horovod's deprecated ``average`` means.

    ValueError where both are given, or there is no such op.
    """
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
    """Raises ValueError if ``compression`` lacks a Compressor's functions."""
    if not (callable(getattr(compression, "compress", None)) and hasattr(compression, "decompress")):
        raise ValueError(
            f"compression is {compression!r}, but must have compress and decompress, such as "
            "hvd.Compression.fp16"
        )


def _check_initialized() -> None:
    """Raises HorovodInternalError before ``init``, as Horovod's operations do."""
    try:
        _core.size()
    except ValueError as error:
        raise HorovodInternalError(str(error)) from None


def _check_utf8(name: str, operation: str) -> None:
    """Raises ValueError if a name has no form in UTF-8: the peers read it as UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{operation}: name {name!r} has no form in UTF-8 (a lone surrogate); choose another"
        ) from None


class Call:
    """Checks the arguments of one call of an operation; its errors name the call.

    If a check inside ``with`` fails, the peers get its error: they would wait for this rank otherwise.
    """

    __slots__ = ("group", "name", "operation", "shown")

    def __init__(
        self, operation: str, name: str | None, process_set: ProcessSet, shown: str | None = None
    ) -> None:
        """operation: the peers wait for it. shown: the called function, if it has another name."""
        _check_initialized()
        self.group = member_id(process_set)
        if name is not None and not isinstance(name, str):
            raise ValueError(f"{shown or operation}: name must be a str or None, not {name!r}")
        if name is not None and not name.isascii():
            _check_utf8(name, shown or operation)
        self.operation, self.name, self.shown = operation, name, shown or operation

    def __enter__(self) -> Call:
        if torch._C._are_functorch_transforms_active():
            error = self.wrong(
                "it talks to other ranks, which a torch.func transform (grad, vmap, jvp, functionalize ...) "
                "cannot transform: call it outside, on what the transformed function takes or returns"
            )
            self.__exit__(ValueError, error, None)
            raise error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None and _core.is_initialized():
            _core.submit_error(self.operation, self.name, str(error), self.group)

    def wrong(self, text: str) -> ValueError:
        """Returns the ValueError to raise for this call."""
        return ValueError(f"{self.shown}{f' of {self.name!r}' if self.name else ''}: {text}")

    def check_tensor(self, tensor: torch.Tensor) -> None:
        """Raises ValueError if it is no tensor for the core, which checks dtype and device itself."""
        if not isinstance(tensor, torch.Tensor):
            raise self.wrong(
                f"a torch.Tensor is needed, not {type(tensor).__name__}: torch.as_tensor() makes one"
            )
        wrong = wrong_tensor(tensor)
        if wrong:
            raise self.wrong(f"the tensor is {wrong}")
        if tensor.is_mkldnn:  # few functions of torch take such a tensor
            raise self.wrong("the tensor is in MKL-DNN's layout; pass tensor.to_dense()")
        if self.operation != "broadcast":
            unreduced.note_operation(tensor)

    def check_rows(self, tensor: torch.Tensor) -> None:
        """Raises ValueError if it is no tensor with a first dimension."""
        self.check_tensor(tensor)
        if tensor.dim() == 0:
            raise self.wrong("the tensor has no dimensions; pass tensor.unsqueeze(0)")

    def check_apart(self, group: Sequence[torch.Tensor]) -> None:
        """Raises ValueError if tensors that get their results in place share memory."""
        if len({id(tensor) for tensor in group}) < len(group):
            raise self.wrong("the same tensor is in the group twice")
        spans = sorted(
            (tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes)
            for tensor in group
            if tensor.layout == torch.strided and tensor.nbytes and tensor.is_contiguous()
        )
        if any(end > begin for (_, end), (begin, _) in itertools.pairwise(spans)):
            raise self.wrong("two tensors of the group share memory, and each would get its result there")

    def checked_group(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the tensors of a grouped operation as a list."""
        if not isinstance(tensors, list | tuple):
            raise self.wrong(f"a list or tuple of tensors is needed, not {type(tensors).__name__}")
        for tensor in tensors:
            self.check_tensor(tensor)
        return list(tensors)

    def checked_op(self, tensors: Sequence[torch.Tensor], op: int | None, average: bool | None = None) -> int:
        """Returns the op, which fits the dtypes of ``tensors``."""
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

    def checked_reduction(
        self,
        tensors: Sequence[torch.Tensor],
        op: int | None,
        average: bool | None,
        prescale_factor: Any,
        postscale_factor: Any,
    ) -> ScaledOp:
        """Returns how the core reduces the tensors."""
        return (
            self.checked_op(tensors, op, average),
            self._factor("prescale_factor", prescale_factor),
            self._factor("postscale_factor", postscale_factor),
        )

    def _factor(self, which: str, value: Any) -> float:
        try:
            factor = float(value)
        except (TypeError, ValueError, RuntimeError):
            factor = math.nan
        if not math.isfinite(factor):
            raise self.wrong(f"{which} is {value!r}, but must be a finite number")
        return factor

    def compressed(
        self, compression: type[Compressor], tensors: Sequence[torch.Tensor]
    ) -> list[tuple[torch.Tensor, Any]]:
        """Returns the compressed tensors and their contexts.

        ValueError if ``compression`` lacks a Compressor's functions, or refuses a tensor.
        """
        try:
            check_compression(compression)
            return [compression.compress(tensor) for tensor in tensors]
        except ValueError as error:
            raise self.wrong(str(error)) from error


def decompressed(
    compression: type[Compressor], results: Iterable[torch.Tensor], wires: Sequence[tuple[torch.Tensor, Any]]
) -> list[torch.Tensor]:
    """Undoes the compression of ``wires``, (tensor, context) pairs, on the results of an operation."""
    return [compression.decompress(one, context) for one, (_, context) in zip(results, wires, strict=True)]


def are_differentiable(tensors: Iterable[torch.Tensor]) -> list[bool]:
    """Returns for each tensor whether it can have a gradient."""
    return [tensor.is_floating_point() or tensor.is_complex() for tensor in tensors]


def only_differentiable(gradients: Iterable[torch.Tensor], which: Sequence[bool]) -> list[torch.Tensor]:
    """Returns the gradients of the tensors that can have one."""
    return [gradient for gradient, has_gradient in zip(gradients, which, strict=True) if has_gradient]


def with_none(results: Iterable[torch.Tensor], which: Sequence[bool]) -> list[torch.Tensor | None]:
    """Returns the results with None for each tensor that can have no gradient."""
    given = iter(results)
    return [next(given) if has_gradient else None for has_gradient in which]


def row_of_this_rank(*numbers: int) -> torch.Tensor:
    """Returns a row of this rank and the numbers. Joined ranks gather no rows, so each row names its rank."""
    return torch.tensor([[_core.rank(), *numbers]], dtype=torch.int64, device="cpu")


def never_empty(group: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns the group, or one tensor without elements: ranks whose groups differ must get an error."""
    return group or [torch.empty(0, device="cpu")]


_One = TypeVar("_One")


def by_device(pairs: Iterable[tuple[torch.Tensor, _One]]) -> list[list[_One]]:
    """Groups what belongs to tensors of one device, as an operation takes one device; keeps the order."""
    parts: dict[torch.device, list[_One]] = {}
    for tensor, one in pairs:
        parts.setdefault(tensor.device, []).append(one)
    return list(parts.values())


def exact_gradients() -> bool:
    """Returns whether gradients are those of the sum of all ranks' losses; if not, they are Horovod's."""
    return _core.config().exact_gradients


def gradient_name(name: str | None) -> str | None:
    """Returns the name of the operation that backward runs for the operation ``name``."""
    return f"{name}.gradient" if name else None


def recorded(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """Runs the function and records it for autograd."""
    return function.apply(*arguments)
