"""The times of kernels on a machine, which `roundelay tune --layers` has learned: a part of the tuning file.

A roofline (Williams et al. 2009) bounds each kind of kernel, and a multi-layer perceptron gives the factor by
which a kernel differs from it. Barrachina et al. (2021) also have one network for each kind of kernel.
Beyond the sizes that were measured the factor is that of the nearest ones. To predict needs neither numpy nor
scikit-learn.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from roundelay._internal.json_objects import WrongPartError, object_, objects
from roundelay.tuning.kernels.kinds import KINDS, Kernel, directions, work


@dataclass(frozen=True)
class Roofline:
    """The rates that a kind of kernel reaches, and the seconds that it takes at least."""

    overhead: float  # s of a kernel, whatever its size
    flops: float  # arithmetic operations a second
    bandwidth: float  # B/s

    def seconds(self, flops: float, moved: float) -> float:
        """Returns the time of `flops` operations, or of `moved` bytes if that is longer."""
        return self.overhead + max(flops / self.flops, moved / self.bandwidth)


@dataclass(frozen=True)
class Errors:
    """Relative errors, |predicted - measured| / measured, of shapes that the model has not learned from."""

    median: float
    ninetieth: float  # the 90th percentile


@dataclass(frozen=True)
class Input:
    """A feature of a network: its mean and scale, and its range in the measured shapes."""

    name: str
    mean: float
    scale: float
    low: float
    high: float


@dataclass(frozen=True)
class NetLayer:
    """A layer of the network, followed by tanh except for the last."""

    weights: tuple[tuple[float, ...], ...]  # each output's: one weight an input
    biases: tuple[float, ...]

    def outputs(self, values: Sequence[float]) -> list[float]:
        """Returns weights times values, plus biases."""
        return [
            sum(w * value for w, value in zip(row, values, strict=True)) + bias
            for row, bias in zip(self.weights, self.biases, strict=True)
        ]


@dataclass(frozen=True)
class KernelTimes:
    """One direction of one kind. The network is used if it has layers: it was better than the roofline."""

    kind: str
    direction: str
    learned_from: int  # the number of shapes
    tested_on: int  # the number of other shapes
    roofline: Roofline
    roofline_errors: Errors
    network_errors: Errors
    inputs: tuple[Input, ...]
    network: tuple[NetLayer, ...]  # gives log(measured / roofline)

    @property
    def errors(self) -> Errors:
        """The errors of the model that is used: network or roofline."""
        return self.network_errors if self.network else self.roofline_errors

    def seconds(self, kernel: Kernel, samples: float) -> float:
        """Returns the time of a kernel of this kind in this direction."""
        bound = self.roofline.seconds(*work(kernel, samples, self.direction))
        return bound * self._factor(kernel, self._nearest(kernel, samples)) if self.network else bound

    def _nearest(self, kernel: Kernel, samples: float) -> float:
        """Returns so few samples that the kernel is in range; `samples` if one sample is not."""
        fewer = samples
        while self.is_outside(kernel, fewer):
            fewer /= 2
            if fewer < 1:
                return samples
        return fewer

    def _factor(self, kernel: Kernel, samples: float) -> float:
        """Returns the network's factor for sizes that are no further than its range."""
        features = kernel.features(samples)
        values = [
            (min(max(features[one.name], one.low), one.high) - one.mean) / one.scale for one in self.inputs
        ]
        for layer in self.network[:-1]:
            values = [math.tanh(value) for value in layer.outputs(values)]
        return math.exp(self.network[-1].outputs(values)[0])

    def is_outside(self, kernel: Kernel, samples: float) -> bool:
        """Tells whether a feature lies out of the range of the measured shapes."""
        features = kernel.features(samples)
        return any(not one.low <= features[one.name] <= one.high for one in self.inputs)


@dataclass(frozen=True)
class LayerTimes:
    """The models of a machine's kernels."""

    date: str  # ISO 8601, UTC
    device: str
    threads: int  # the threads that computed
    kernels: tuple[KernelTimes, ...]

    def of(self, kernel: Kernel, direction: str) -> KernelTimes:
        """Returns the model of a kernel's kind."""
        return next(one for one in self.kernels if one.kind == kernel.kind and one.direction == direction)


def from_json(content: Any) -> LayerTimes:
    """Makes the part of a file's JSON. Raises WrongPartError."""
    times = object_(LayerTimes, "layers", content)
    raw = objects(KernelTimes, "layers.kernels", times.kernels)
    kernels = tuple(_kernel_times(f"layers.kernels[{index}]", one) for index, one in enumerate(raw))
    wanted = [(kind, direction) for kind in KINDS for direction in directions(kind)]
    if sorted((one.kind, one.direction) for one in kernels) != sorted(wanted):
        raise WrongPartError(f'"layers.kernels" must have {", ".join(map(" ".join, wanted))}')
    return dataclasses.replace(times, kernels=kernels)


def _kernel_times(name: str, raw: KernelTimes) -> KernelTimes:
    roofline = object_(Roofline, f"{name}.roofline", raw.roofline)
    if roofline.flops <= 0 or roofline.bandwidth <= 0:
        raise WrongPartError(f'"{name}.roofline" has a rate of 0')
    inputs = objects(Input, f"{name}.inputs", raw.inputs)
    if any(one.scale <= 0 for one in inputs):
        raise WrongPartError(f'"{name}.inputs" has a scale of 0')
    layers = objects(NetLayer, f"{name}.network", raw.network)
    network = tuple(_net_layer(f"{name}.network[{index}]", one) for index, one in enumerate(layers))
    sizes = [len(inputs), *(len(layer.biases) for layer in network)]
    fits = all(
        len(row) == width for width, layer in zip(sizes, network, strict=False) for row in layer.weights
    )
    if network and not (fits and sizes[-1] == 1):
        raise WrongPartError(f'"{name}.network" has layers that do not fit each other')
    return dataclasses.replace(
        raw,
        roofline=roofline,
        roofline_errors=object_(Errors, f"{name}.roofline_errors", raw.roofline_errors),
        network_errors=object_(Errors, f"{name}.network_errors", raw.network_errors),
        inputs=inputs,
        network=network,
    )


def _net_layer(name: str, raw: NetLayer) -> NetLayer:
    rows = [_numbers(f"{name}.weights", row) for row in raw.weights]
    biases = _numbers(f"{name}.biases", raw.biases)
    if not rows or len(rows) != len(biases):
        raise WrongPartError(f'"{name}" has {len(rows)} rows of weights and {len(biases)} biases')
    return NetLayer(tuple(rows), biases)


def _numbers(name: str, content: Any) -> tuple[float, ...]:
    good = isinstance(content, list) and all(
        isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one) for one in content
    )
    if not good:
        raise WrongPartError(f'"{name}" is no list of numbers')
    return tuple(content)
