"""Steps of torch.optim.SGD for gradients of which a part was sent: masked, and with momentum of their own.

The caller calls hide_gradients(), which takes ``.grad`` of these parameters away, so that the optimizer's own
step leaves them as they are. After that step it calls show_gradients(), and then one of the two steps here. A
step that raises before has changed nothing.

Both decay all elements in each step, as SGD does. SGD is linear: its momentum is the sum of one of gradients
and one of the decay, b = momentum * b + weight_decay * w.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import torch
from torch.optim.sgd import sgd

from roundelay.torch._internal.gradients.pool_strides import pool_strides
from roundelay.torch._internal.strategy.bucket import Part, Sent

Taken = list[tuple[torch.Tensor, torch.Tensor]]  # parameters and their gradients
Decays = list[tuple[torch.Tensor, torch.Tensor]]  # parameters and the momentum of their decay

# The key of that momentum in the optimizer's state. It is a part of ``momentum_buffer``.
DECAY_KEY = "decay_buffer"
# The key of the part of ``momentum_buffer`` that is left since a gradient was last added to it.
LEFT_KEY = "momentum_left"
# Less than this is less than a rounding of what the momentum has done. It would fade for ever: 0.9 times the
# smallest number is rounded to itself, and a processor takes twenty times as long for numbers below 1e-38.
_NOTHING = 2.0**-25


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
    for one in sent:
        if one.part is None:
            continue
        runs = runs_of(one.part)
        for number, (parameter, place) in enumerate(zip(one.parameters, one.bucket.ranges, strict=True)):
            if parameter is None or number in one.part.dense:
                continue
            ranges = within(runs, place)
            if ranges != [range(len(place))]:
                found[parameter] = Elements(pool_strides(parameter), ranges)
    return found


def marked(sent: Iterable[Sent]) -> list[torch.Tensor]:
    """Returns the parameters whose first gradient is NaN if another one of their buckets has overflowed."""
    found = []
    for one in sent:
        if one.part is not None:
            dense = one.part.dense
            found += [p for n, p in enumerate(one.parameters) if p is not None and n not in dense][:1]
    return found


@torch.no_grad()
def masked_step(
    optimizer: torch.optim.SGD,
    elements: Mapping[torch.Tensor, Elements],
    decays: Decays | None = None,
    marks: Iterable[torch.Tensor] = (),
) -> None:
    """Steps these elements of these tensors. Their other elements decay, and do nothing else.

    An element that was sent takes SGD's own step, to the bit. Another takes the same with a gradient of zero
    and the momentum of decay alone; the momentum of its gradients waits. decays: what decays_of() returned
    before SGD's own step. marks: tensors that get the NaN of an overflow, which may not have been sent.
    Source: the momentum correction of GradientFlow (arXiv 1902.06855).
    """
    for group in optimizer.param_groups:
        flats, decaying = _Flats(), _Decaying()
        moves = group["momentum"] != 0
        for parameter in group["params"]:
            if parameter.grad is None or parameter not in elements:
                continue
            gradient = _dense(parameter.grad)
            state = optimizer.state[parameter] if moves else {}
            buffer = _buffer(state, gradient) if moves else None
            wholes = flats.add(parameter, gradient, buffer, elements[parameter])
            if group["weight_decay"] != 0 or DECAY_KEY in state:
                decaying.add(*wholes, _buffer(state, gradient, DECAY_KEY) if moves else None)
        if decaying.parameters:
            sent = flats.stepped()
            before = [part.clone() for part in sent]
            decaying.step(group)
            for part, old in zip(sent, before, strict=True):
                part.copy_(old)
        if flats.parameters:
            _sgd(group, flats.parameters, flats.gradients, flats.buffers, group["momentum"])
        flats.copy_back()
    for parameter, decay in decays or ():
        optimizer.state[parameter][DECAY_KEY] = decay
    for parameter in marks:
        if parameter.grad is not None:
            first = (0,) * parameter.dim()
            parameter[first] += 0 * _dense(parameter.grad)[first]


@torch.no_grad()
def decays_of(optimizer: torch.optim.SGD, parameters: Set[torch.Tensor]) -> Decays:
    """Returns the momentum of decay as it will be when SGD itself has stepped these parameters.

    It changes nothing. A later step that sends a part of the parameter goes on with it.
    """
    found: Decays = []
    for group in optimizer.param_groups:
        for one in group["params"]:
            before = optimizer.state.get(one, {}).get(DECAY_KEY)
            still = group["momentum"] == 0 or (group["weight_decay"] == 0 and before is None)
            if still or one.grad is None or one not in parameters:
                continue
            now = one.detach() * group["weight_decay"]
            found.append((one, now if before is None else now.add_(before * group["momentum"])))
    return found


@torch.no_grad()
def local_step(optimizer: torch.optim.SGD, parameters: Set[torch.Tensor]) -> None:
    """Steps these parameters by their gradients, which contain the momentum of the ranks, and decays them.

    ``momentum_buffer`` has all other momentum: of decay, and of the gradients of SGD's own steps. It goes on
    as it does in SGD while gradients are zero. Without decay it is forgotten when nothing of it is left.
    """
    for group in optimizer.param_groups:
        moving: list[torch.Tensor] = []
        plain: list[torch.Tensor] = []
        for one in group["params"]:
            if one.grad is None:
                continue
            state = optimizer.state.get(one, {})
            if one not in parameters:
                state.pop(LEFT_KEY, None)  # SGD has stepped it
                continue
            state.pop(DECAY_KEY, None)  # of masked steps: the buffer contains it
            (moving if _coasts(group, state) else plain).append(one)
        gradients = _gradients(moving)
        buffers = [_buffer(optimizer.state[one], like) for one, like in zip(moving, gradients, strict=True)]
        _coast(group, moving, buffers, gradients)
        if plain:
            _sgd(group, plain, _gradients(plain), [None] * len(plain), 0.0)


def _coasts(group: Mapping[str, Any], state: dict[str, Any]) -> bool:
    """Returns whether a parameter has momentum beside that of the ranks; forgets it if nothing is left."""
    if group["momentum"] == 0:
        return False
    if group["weight_decay"] != 0:
        state.pop(LEFT_KEY, None)
        return True
    if state.get("momentum_buffer") is None:
        return False
    left = state.pop(LEFT_KEY, 1.0) * group["momentum"]
    if left < _NOTHING:
        del state["momentum_buffer"]
        return False
    state[LEFT_KEY] = left
    return True


def forget_parts(optimizer: torch.optim.SGD) -> None:
    """Makes all momentum that of gradients: steps follow that do not tell its parts apart."""
    for state in optimizer.state.values():
        state.pop(DECAY_KEY, None)
        state.pop(LEFT_KEY, None)


def hide_gradients(optimizer: torch.optim.SGD, parameters: Set[torch.Tensor]) -> Taken:
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


def show_gradients(taken: Taken) -> None:
    """Gives the parameters their gradients again, but for those that have got new ones."""
    for parameter, gradient in taken:
        if parameter.grad is None:
            parameter.grad = gradient


def _buffer(state: dict[str, Any], like: torch.Tensor, key: str = "momentum_buffer") -> torch.Tensor:
    """Returns the momentum; it begins with zeros, as parts of it begin in different steps."""
    buffer = state.get(key)
    state[key] = made = torch.zeros_like(like) if buffer is None else _dense(buffer)
    return made


def _gradients(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [_dense(one.grad) for one in parameters if one.grad is not None]


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


def _coast(
    group: Mapping[str, Any],
    parameters: list[torch.Tensor],
    buffers: list[torch.Tensor],
    gradients: list[torch.Tensor] | None = None,
) -> None:
    """Steps by momentum to which gradients add nothing: b = momentum * b + weight_decay * w; w -= lr (g + b).

    With Nesterov, w -= lr (g + weight_decay * w + momentum * b). Without gradients the bits are those of SGD
    with zeros. buffers: empty if the group has no momentum.
    """
    together = group["foreach"] or (group["foreach"] is None and all(one.is_cuda for one in parameters))
    parts = [slice(None)] if together else [slice(number, number + 1) for number in range(len(parameters))]
    for part in parts if parameters else []:
        moves = _moves(group, parameters[part], buffers[part])
        plain = {**group, "weight_decay": 0.0}
        _sgd({**plain, "maximize": False}, parameters[part], moves, [None] * len(moves), 0.0)
        if gradients is not None:
            # A step of its own needs no memory for the sum.
            _sgd(plain, parameters[part], gradients[part], [None] * len(moves), 0.0)


def _moves(
    group: Mapping[str, Any], parameters: list[torch.Tensor], momentum: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Returns by what such a step moves the parameters, and moves the momentum on."""
    decays: list[torch.Tensor] = []
    if group["weight_decay"] != 0 or not momentum:
        decays = list(torch._foreach_mul(parameters, group["weight_decay"]))
    if not momentum:
        return decays
    torch._foreach_mul_(momentum, group["momentum"])
    if decays:
        torch._foreach_add_(momentum, decays)
    if not group["nesterov"]:
        return momentum
    if decays:
        return list(torch._foreach_add(decays, momentum, alpha=group["momentum"]))
    return list(torch._foreach_mul(momentum, group["momentum"]))


class _Decaying:
    """Whole parameters and their momentum, of which every element decays."""

    def __init__(self) -> None:
        self.parameters: list[torch.Tensor] = []
        self._buffers: list[torch.Tensor] = []  # empty if the group has no momentum
        self._decays: list[torch.Tensor] = []  # the parts of these that are decay's

    def add(self, parameter: torch.Tensor, buffer: torch.Tensor | None, decay: torch.Tensor | None) -> None:
        """Adds a parameter."""
        self.parameters.append(parameter)
        if buffer is not None and decay is not None:
            self._buffers.append(buffer)
            self._decays.append(decay)

    def step(self, group: Mapping[str, Any]) -> None:
        """Takes SGD's step with gradients of zero; the momentum that is not decay's stays as it is."""
        if self._decays:
            torch._foreach_sub_(self._buffers, self._decays)
        _coast(group, self.parameters, self._decays)
        if self._decays:
            torch._foreach_add_(self._buffers, self._decays)


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
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Adds these elements of all three. Returns the whole parameter and buffer, in the pool's order."""
        whole, whole_buffer = self._in_order(parameter, elements), None
        self.parameters += _parts(whole, elements)
        self.gradients += _parts(self._in_order(gradient, elements), elements)
        if buffer is None:
            self.buffers += [None] * len(elements.ranges)
        else:
            whole_buffer = self._in_order(buffer, elements)
            self.buffers += _parts(whole_buffer, elements)
        return whole, whole_buffer

    def stepped(self) -> list[torch.Tensor]:
        """Returns the parts that a step changes."""
        return self.parameters + [buffer for buffer in self.buffers if buffer is not None]

    def _in_order(self, tensor: torch.Tensor, elements: Elements) -> torch.Tensor:
        tensor, strides = tensor.detach(), elements.strides
        if tensor.stride() == strides:
            return tensor
        copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
        self._copies.append((tensor, copy.copy_(tensor)))
        return copy

    def copy_back(self) -> None:
        """Writes what has changed to tensors with other strides than the pool's."""
        for tensor, copy in self._copies:
            tensor.copy_(copy)


def _parts(tensor: torch.Tensor, elements: Elements) -> list[torch.Tensor]:
    flat = tensor.as_strided((tensor.numel(),), (1,))
    return [flat[one.start : one.stop] for one in elements.ranges]
