"""allreduce with weights: averages over samples, of which the ranks have different numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.operations.common import (
    Average,
    Call,
    Sum,
    gradient_name,
    never_empty,
    recorded,
)
from roundelay.torch._internal.operations.handles import remember
from roundelay.torch.compression import Compression, Compressor
from roundelay.torch.process_sets import ProcessSet


class WeightedAverage:
    """The average of each tensor, sum(weight * tensor) / sum(weight) over the ranks.

    One operation sums the products and the weights: all or nothing. Products of half tensors are fp32, so
    that none overflows, and the average is rounded once.
    """

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        in_place: bool,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
        weight: Any,
    ) -> None:
        """ValueError: an argument is wrong; the peers get it, too."""
        with Call("allreduce", name, process_set) as call:
            group = call.checked_group(tensors)
            reduction = call.checked_reduction(group, op, average, prescale_factor, postscale_factor)
            if reduction != (Average, 1.0, 1.0):
                raise call.wrong("weight= needs op=hvd.Average, without prescale_factor and postscale_factor")
            for tensor in group:
                if not (tensor.is_floating_point() or tensor.is_complex()):
                    raise call.wrong(
                        f"weight= is for floating point and complex tensors, not {tensor.dtype}: pass "
                        "tensor.float()"
                    )
            if in_place:
                call.check_apart(group)
            self._weight = _checked(call, weight)
        self._results = group if in_place else [torch.empty_like(tensor) for tensor in group]
        self._sums = [_product(tensor.detach(), self._weight) for tensor in group]
        device = never_empty(group)[0].device
        self._total = torch.tensor(self._weight, dtype=torch.float64, device=device)
        # Their products are all fp32. So the ranks compare the types of what they gave.
        self._types = [torch.empty_like(tensor.detach().flatten()[:0]) for tensor in group]
        self._call, self._name = call, name

    def run(self) -> list[torch.Tensor]:
        """Waits for the averages and returns them. ValueError: all ranks have weight 0."""
        _core.grouped_allreduce(*self._arguments())
        return self._averages()

    def start(self, alone: bool = False) -> int:
        """Returns the handle for ``synchronize``, which gives the list. alone: it gives the only tensor."""

        def result(_: list[torch.Tensor]) -> Any:
            averages = self._averages()
            return averages[0] if alone else averages

        return remember(_core.grouped_allreduce_async(*self._arguments()), result)

    def total(self) -> float:
        """Returns the sum of all ranks' weights. Call it after run()."""
        return self._total.item()

    def share(self) -> float:
        """Returns the part of this rank's tensors in the average. Call it after run()."""
        return self._weight / self.total()

    def _arguments(self) -> tuple[Any, ...]:
        tensors = [*self._sums, self._total, *self._types]
        return tensors, tensors, self._name, Sum, 1.0, 1.0, self._call.group

    def _averages(self) -> list[torch.Tensor]:
        if not 0.0 < self.total() < math.inf:
            raise self._call.wrong(
                f"the sum of all ranks' weights is {self.total():g}, which gives no average: "
                "leave the call out on all ranks, or give one of them a weight above 0"
            )
        with torch.no_grad():
            for result, total in zip(self._results, self._sums, strict=True):
                result.copy_(total.div_(self._total))
        return self._results


class _WeightedAverage(torch.autograd.Function):
    """The gradient of a rank's tensor is its share of the sum of the ranks' gradients.

    Returns the sum of the weights, and the averages.
    """

    @staticmethod
    def forward(ctx: Any, arguments: tuple[Any, ...], *tensors: torch.Tensor) -> tuple[Any, ...]:
        average = WeightedAverage(tensors, False, *arguments)
        results = average.run()
        _, name, *_, process_set, _ = arguments
        ctx.name, ctx.process_set, ctx.share = name, process_set, average.share()
        return average.total(), *results

    @staticmethod
    def backward(ctx: Any, _: None, *gradients: torch.Tensor) -> Any:
        arguments = (None, gradient_name(ctx.name), None, 1.0, 1.0, ctx.process_set, 1.0)
        present, *averages = recorded(_WeightedAverage, arguments, *gradients)  # without those that joined
        return None, *(average * (present * ctx.share) for average in averages)


def differentiable(
    tensors: Sequence[torch.Tensor],
    average: bool | None,
    name: str | None,
    compression: type[Compressor],
    op: int | None,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    weight: Any,
) -> list[torch.Tensor]:
    """Returns the averages, which autograd records."""
    with Call("allreduce", name, process_set) as call:
        group = call.checked_group(tensors)
        if compression is not Compression.none:
            raise call.wrong(
                "weight= needs compression=hvd.Compression.none: products travel in fp32 or fp64"
            )
    arguments = (average, name, op, prescale_factor, postscale_factor, process_set, weight)
    if not group:
        return WeightedAverage(group, False, *arguments).run()
    averages: list[torch.Tensor]
    _, *averages = recorded(_WeightedAverage, arguments, *group)
    return averages


def _checked(call: Call, weight: Any) -> float:
    try:
        number = float(weight)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = math.nan
    if not 0.0 <= number < math.inf:
        raise call.wrong(f"weight is {weight!r}, but must be a finite number from 0 on")
    return number


def _product(tensor: torch.Tensor, weight: float) -> torch.Tensor:
    """Returns the product; zeros for weight 0, as the mean over no samples is NaN."""
    half = tensor.is_floating_point() and tensor.element_size() < 4
    dtype = torch.float32 if half else tensor.dtype
    if weight == 0.0:
        return torch.zeros_like(tensor, dtype=dtype)
    return tensor.to(dtype) * weight
