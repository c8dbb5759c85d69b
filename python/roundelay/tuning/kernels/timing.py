"""Measures kernels on this machine, as PyTorch runs them in training: forward, and backward by autograd."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from roundelay.tuning.kernels.kinds import Convolution, ElementWise, MatrixProduct, Normalisation, Update
from roundelay.tuning.kernels.sampling import Limits, Shape

_MOST = 15  # repetitions that count
_ENOUGH_S = 0.03  # repetitions end after this time
_POOLED_SIDE = 56  # the side of the images that a pooling gets
_ROW = 1024  # elements of which a softmax makes a distribution
_LONGEST_S = 0.15  # the longest forward, at the rate of a large matrix product
_BYTES = 256e6  # the bytes of the largest shape
_UPDATED = 1 << 24  # weights of one optimizer at least: in training, too, none are in the cache

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Sample:
    """A shape, and the median seconds of its forward and backward."""

    shape: Shape
    forward: float
    backward: float  # 0 of an update, which has none


def device() -> torch.device:
    """Returns the device whose kernels count: a GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def name_of(one: torch.device) -> str:
    """Returns a device's name: "cpu", or a GPU's product name."""
    return torch.cuda.get_device_name(one) if one.type == "cuda" else one.type


def limits(on: torch.device) -> Limits:
    """Returns the largest shapes that this machine computes in a fraction of a second."""
    size = 1024
    left, right = torch.ones(2, size, size, device=on)
    seconds = median_seconds(lambda: left @ right, on)
    return Limits(_LONGEST_S * 2 * size**3 / seconds, _BYTES)


def measure(shape: Shape, on: torch.device) -> Sample:
    """Measures a shape in its directions."""
    if isinstance(shape.kernel, Update):
        return Sample(shape, _update_seconds(shape.kernel, on), 0.0)
    run, inputs = program(shape, on)
    forward = median_seconds(run, on)
    result = run()
    gradient = torch.ones_like(result)
    backward = median_seconds(lambda: torch.autograd.grad(result, inputs, gradient, retain_graph=True), on)
    return Sample(shape, forward, backward)


def median_seconds(call: Call, on: torch.device) -> float:
    """Returns the median time of a call. The first one does not count: it allocates and compiles."""
    call()
    times: list[float] = []
    while len(times) < _MOST and sum(times) < _ENOUGH_S:
        _wait(on)
        begin = time.perf_counter()
        call()
        _wait(on)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def _wait(on: torch.device) -> None:
    if on.type == "cuda":
        torch.cuda.synchronize(on)


def _update_seconds(kernel: Update, on: torch.device) -> float:
    """Returns the time of one of many tensors that an optimizer updates."""
    count = math.ceil(_UPDATED / kernel.elements)
    weights = [torch.ones(kernel.elements, device=on, requires_grad=True) for _ in range(count)]
    for one in weights:
        one.grad = torch.ones_like(one)
    optimizer = torch.optim.SGD(weights, lr=1e-4, momentum=0.9)
    return median_seconds(optimizer.step, on) / count


def program(shape: Shape, on: torch.device) -> tuple[Callable[[], torch.Tensor], Sequence[torch.Tensor]]:
    """Returns forward, and the tensors whose gradients backward computes."""
    kernel, samples = shape.kernel, shape.samples

    def tensor(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device=on, requires_grad=True)

    if isinstance(kernel, Convolution):
        padding = (kernel.kernel - 1) // 2
        images = tensor(samples, kernel.inputs, kernel.side * kernel.stride, kernel.side * kernel.stride)
        weights = tensor(kernel.outputs, kernel.inputs, kernel.kernel, kernel.kernel)
        inputs = (weights,) if kernel.of_images else (images, weights)
        images.requires_grad_(not kernel.of_images)
        return lambda: functional.conv2d(images, weights, stride=kernel.stride, padding=padding), inputs
    if isinstance(kernel, MatrixProduct):
        products, rows = map(int, kernel.shape(samples))
        if kernel.groups:
            factors = (tensor(products, rows, kernel.inner), tensor(products, kernel.inner, kernel.columns))
            return lambda: torch.bmm(*factors), factors
        linear = (tensor(rows, kernel.inner), tensor(kernel.columns, kernel.inner), tensor(kernel.columns))
        return lambda: functional.linear(*linear), linear
    if isinstance(kernel, Normalisation):
        scales = (tensor(kernel.channels), tensor(kernel.channels))
        if kernel.by_place:
            values = tensor(samples, kernel.places, kernel.channels)
            sizes = (kernel.channels,)
            return lambda: functional.layer_norm(values, sizes, *scales), (values, *scales)
        values = tensor(samples, kernel.channels, kernel.places)
        norm = functional.batch_norm
        return lambda: norm(values, None, None, *scales, training=True), (values, *scales)
    if isinstance(kernel, ElementWise):
        return _element_wise(kernel, samples, tensor)
    raise ValueError(f"{kernel} is no function: it has no result")


def _element_wise(
    kernel: ElementWise, samples: int, tensor: Callable[..., torch.Tensor]
) -> tuple[Callable[[], torch.Tensor], Sequence[torch.Tensor]]:
    elements = kernel.elements * samples
    if kernel.operation.startswith("max_pool"):
        window = int(kernel.operation[-1])
        side = min(_POOLED_SIDE, int(elements**0.5))
        images = tensor(1, max(1, elements // side**2), side, side)
        return lambda: functional.max_pool2d(images, window, stride=2), (images,)
    if kernel.operation == "softmax":
        rows = tensor(max(1, elements // _ROW), _ROW)
        return lambda: functional.softmax(rows, dim=1), (rows,)
    values = tensor(elements)
    if kernel.operation == "add":
        other = tensor(elements)
        return lambda: values + other, (values, other)
    apply = functional.relu if kernel.operation == "relu" else functional.gelu
    return lambda: apply(values), (values,)
