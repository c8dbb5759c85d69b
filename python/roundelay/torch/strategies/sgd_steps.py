"""Steps of torch.optim.SGD for gradients of which a part was sent: masked, and without momentum.

The caller calls take(), which takes ``.grad`` of these parameters away, so that the optimizer's own step
leaves them as they are. After that step it calls put_back(), and then one of the two steps here. So a step
that raises before has changed nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import torch
from torch.optim.sgd import sgd

from roundelay.torch.strategies.pool_shapes import pool_strides
from roundelay.torch.strategies.protocol import Part, Sent

Taken = list[tuple[torch.Tensor, torch.Tensor]]  # parameters and their gradients


class Elements(NamedTuple):
    """Elements of a parameter, in the order in which the pool has them."""

    strides: tuple[int, ...]  # those of the parameter's entry in the pool
    ranges: list[range]  # ascending, disjoint


def check_group(group: Mapping[str, Any], text: str) -> None:
    """Raises ValueError if this group of parameters has a setting that the steps below lack."""
    wrong = next((key for key in ("fused", "differentiable") if group.get(key)), None)
    if wrong is None and group["momentum"] != 0 and group["dampening"] != 0:
        wrong = "dampening"
    if wrong is not None:
        raise ValueError(
            f"strategy {text} steps torch.optim.SGD by itself, which it cannot do with {wrong}="
            f"{group[wrong]}: leave {wrong} out, or give the strategy momentum=None"
        )


def runs_of(part: Part) -> list[range]:
    """Returns the elements of the bucket that were sent, neighbouring chunks as one. Waits for the device."""
    runs: list[range] = []
    for number in part.chunks.tolist():
        begin = number * part.chunk
        if runs and runs[-1].stop == begin:
            runs[-1] = range(runs[-1].start, begin + part.chunk)
        else:
            runs.append(range(begin, begin + part.chunk))
    return runs


def within(runs: Sequence[range], place: range) -> list[range]:
    """Returns the parts of the runs that lie in a parameter's place, counted from the place's first element.

    runs: ascending, disjoint.
    """
    first = bisect_right(runs, place.start, key=lambda run: run.stop)
    found = []
    for run in runs[first:]:
        if run.start >= place.stop:
            break
        found.append(range(max(run.start, place.start), min(run.stop, place.stop)))
    return [range(run.start - place.start, run.stop - place.start) for run in found]


def sent_elements(sent: Iterable[Sent]) -> dict[torch.Tensor, Elements]:
    """Returns the elements that were sent of each parameter that was not sent whole."""
    found = {}
    for bucket, parameters, part in sent:
        if part is None:
            continue
        runs = runs_of(part)
        for number, (parameter, place) in enumerate(zip(parameters, bucket.ranges, strict=True)):
            if parameter is None or number in part.dense:
                continue
            ranges = within(runs, place)
            if ranges != [range(len(place))]:
                found[parameter] = Elements(pool_strides(parameter), ranges)
    return found


@torch.no_grad()
def masked_step(optimizer: torch.optim.SGD, elements: Mapping[torch.Tensor, Elements]) -> None:
    """Steps these elements of these tensors. Neither weights nor momentum of their other elements change.

    An element's step has the bits of SGD's own. Source: the momentum correction of GradientFlow (arXiv
    1902.06855).
    """
    for group in optimizer.param_groups:
        flats = _Flats()
        for parameter in group["params"]:
            if parameter.grad is None or parameter not in elements:
                continue
            gradient = _dense(parameter.grad)
            buffer = _buffer(optimizer.state[parameter], gradient) if group["momentum"] != 0 else None
            flats.add(parameter, gradient, buffer, elements[parameter])
        if flats.parameters:
            _sgd(group, flats.parameters, flats.gradients, flats.buffers, group["momentum"])
            flats.copy_back()


@torch.no_grad()
def step_without_momentum(optimizer: torch.optim.SGD, parameters: Set[torch.Tensor]) -> None:
    """Steps these parameters by their gradients, which contain the momentum already."""
    for group in optimizer.param_groups:
        stepped = [one for one in group["params"] if one.grad is not None and one in parameters]
        gradients = [one.grad for one in stepped]
        if stepped:
            _sgd(group, stepped, gradients, [None] * len(stepped), 0.0)
        for parameter in stepped:
            optimizer.state.pop(parameter, None)  # its own momentum, from before: SGD has nothing else there


def take(optimizer: torch.optim.SGD, parameters: Set[torch.Tensor]) -> Taken:
    """Takes the gradients of these parameters away. ValueError: the optimizer has not all of them."""
    owned = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    if not parameters <= owned:
        raise ValueError(
            "the optimizer's groups have other tensors than those whose gradients were sent in part: their "
            "momentum cannot be corrected; give the strategy momentum=None"
        )
    taken = [(one, one.grad) for one in parameters if one.grad is not None]
    for parameter, _ in taken:
        parameter.grad = None
    return taken


def put_back(taken: Taken) -> None:
    """Gives the parameters their gradients again, but for those that have got new ones."""
    for parameter, gradient in taken:
        if parameter.grad is None:
            parameter.grad = gradient


def _buffer(state: dict[str, Any], like: torch.Tensor) -> torch.Tensor:
    """Returns the momentum; it begins with zeros, as parts of it begin in different steps."""
    buffer = state.get("momentum_buffer")
    state["momentum_buffer"] = made = torch.zeros_like(like) if buffer is None else _dense(buffer)
    return made


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor with all elements: with sparse_as_dense, ``.grad`` is sparse after the reduction."""
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def _sgd(
    group: Mapping[str, Any],
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    buffers: list[torch.Tensor | None],
    momentum: float,
) -> None:
    sgd(
        parameters,
        gradients,
        buffers,
        has_sparse_grad=False,
        foreach=group["foreach"],
        weight_decay=group["weight_decay"],
        momentum=momentum,
        lr=group["lr"],
        dampening=0.0,
        nesterov=group["nesterov"] and momentum != 0,
        maximize=group["maximize"],
    )


class _Flats:
    """Parts of parameters, gradients and buffers, as one-dimensional tensors in the pool's order."""

    def __init__(self) -> None:
        self.parameters: list[torch.Tensor] = []
        self.gradients: list[torch.Tensor] = []
        self.buffers: list[torch.Tensor | None] = []
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(
        self,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        buffer: torch.Tensor | None,
        elements: Elements,
    ) -> None:
        """Adds these elements of all three."""
        self.parameters += self._parts(parameter, elements)
        self.gradients += self._parts(gradient, elements)
        self.buffers += [None] * len(elements.ranges) if buffer is None else self._parts(buffer, elements)

    def _parts(self, tensor: torch.Tensor, elements: Elements) -> list[torch.Tensor]:
        tensor, strides = tensor.detach(), elements.strides
        if tensor.stride() != strides:
            copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
            self._copies.append((tensor, copy.copy_(tensor)))
            tensor = copy
        flat = tensor.as_strided((tensor.numel(),), (1,))
        return [flat[one.start : one.stop] for one in elements.ranges]

    def copy_back(self) -> None:
        """Writes what has changed to tensors with other strides than the pool's."""
        for tensor, copy in self._copies:
            tensor.copy_(copy)
