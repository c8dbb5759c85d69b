"""The kernels that layers consist of: their sizes, arithmetic, bytes, and features for a learned model. Pure.

A kernel's sizes are those of one sample; functions take the number of samples. Elements have four bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

FORWARD, BACKWARD = DIRECTIONS = ("forward", "backward")
BACKWARD_WORK = (
    2.0  # backward computes two gradients, of weights and of inputs, where forward has one product
)
_ELEMENT = 4  # bytes
_COLOURS = 3
# Arithmetic operations of an element. `max_pool2` and `max_pool3` take the largest of 4 and 9.
OPERATIONS = {"relu": 1.0, "add": 1.0, "gelu": 8.0, "softmax": 5.0, "max_pool2": 4.0, "max_pool3": 9.0}


@dataclass(frozen=True, slots=True)
class Convolution:
    """A square convolution whose output has `side` by `side` places. Padding keeps the borders."""

    inputs: int
    outputs: int
    kernel: int
    side: int
    stride: int = 1
    kind = "convolution"

    @property
    def of_images(self) -> bool:
        """Tell whether the input has three colours: it is data, which needs no gradient."""
        return self.inputs == _COLOURS

    def work(self, samples: float) -> tuple[float, float]:
        """Return the arithmetic operations and the bytes of forward."""
        weights = self.inputs * self.outputs * self.kernel**2
        read = self.inputs * (self.side * self.stride) ** 2
        places = self.side**2
        return 2.0 * weights * places * samples, _bytes((read + self.outputs * places) * samples + weights)

    def features(self, samples: float) -> dict[str, float]:
        """Return the inputs of a learned model."""
        sizes = {"inputs": self.inputs, "outputs": self.outputs, "kernel": self.kernel, "side": self.side}
        return _logarithms(sizes | {"stride": self.stride, "samples": samples}, self.work(samples))


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """Products of matrices, rows by inner and inner by columns: `groups` of a sample, or with weights.

    Weights are one matrix, inner by columns, for the rows of all samples.
    """

    rows: int
    inner: int
    columns: int
    groups: int = 0  # products of a sample; 0: one product of all samples with weights
    kind = "matrix product"

    def shape(self, samples: float) -> tuple[float, float]:
        """Return the number of products, and the rows of each."""
        return (self.groups * samples, self.rows) if self.groups else (1, self.rows * samples)

    def work(self, samples: float) -> tuple[float, float]:
        """Return the arithmetic operations and the bytes of forward."""
        products, rows = self.shape(samples)
        elements = rows * self.inner + self.inner * self.columns + rows * self.columns
        return 2.0 * products * rows * self.inner * self.columns, _bytes(products * elements)

    def features(self, samples: float) -> dict[str, float]:
        """Return the inputs of a learned model."""
        products, rows = self.shape(samples)
        sizes = {"products": products, "rows": rows, "inner": self.inner, "columns": self.columns}
        return _logarithms(sizes, self.work(samples))


@dataclass(frozen=True, slots=True)
class Normalisation:
    """Normalises `places` values of each channel over a batch, or with `by_place` the channels of a place."""

    channels: int
    places: int
    by_place: bool = False  # True: it normalises each place, as layer normalisation does
    kind = "normalisation"

    def work(self, samples: float) -> tuple[float, float]:
        """Return the arithmetic operations and the bytes of forward, which reads twice and writes once."""
        elements = self.channels * self.places * samples
        return 4.0 * elements, _bytes(3.0 * elements)

    def features(self, samples: float) -> dict[str, float]:
        """Return the inputs of a learned model."""
        sizes = {"channels": self.channels, "places": self.places, "samples": samples}
        if self.by_place:  # rows count, not the samples that they are of
            sizes = {"channels": self.channels, "places": 1, "samples": self.places * samples}
        return {**_logarithms(sizes, self.work(samples)), "by place": float(self.by_place)}


@dataclass(frozen=True, slots=True)
class ElementWise:
    """An operation, one of OPERATIONS, on each of `elements` elements of its input."""

    operation: str
    elements: int
    kind = "element-wise"

    def work(self, samples: float) -> tuple[float, float]:
        """Return the arithmetic operations and the bytes of forward. `add` reads twice."""
        elements = self.elements * samples
        moved = 3.0 if self.operation == "add" else 2.0
        return OPERATIONS[self.operation] * elements, _bytes(moved * elements)

    def features(self, samples: float) -> dict[str, float]:
        """Return the inputs of a learned model."""
        chosen = {name: float(name == self.operation) for name in OPERATIONS}
        return {"elements": math.log2(self.elements * samples), **chosen}


@dataclass(frozen=True, slots=True)
class Update:
    """An update of `elements` weights in place, by SGD with momentum. It has a forward direction alone."""

    elements: int
    kind = "update"

    def work(self, samples: float) -> tuple[float, float]:
        """Return the arithmetic operations and the bytes, of three steps in place."""
        elements = self.elements * samples
        return 4.0 * elements, _bytes(8.0 * elements)

    def features(self, samples: float) -> dict[str, float]:
        """Return the inputs of a learned model."""
        return {"elements": math.log2(self.elements * samples)}


Kernel = Convolution | MatrixProduct | Normalisation | ElementWise | Update
KINDS = tuple(family.kind for family in (Convolution, MatrixProduct, Normalisation, ElementWise, Update))


def directions(kind: str) -> tuple[str, ...]:
    """Return the directions in which a kind of kernel runs."""
    return (FORWARD,) if kind == Update.kind else DIRECTIONS


def work(kernel: Kernel, samples: float, direction: str) -> tuple[float, float]:
    """Return the arithmetic operations and the bytes of one direction."""
    data = isinstance(kernel, Convolution) and kernel.of_images
    times = BACKWARD_WORK if direction == BACKWARD and not data else 1.0
    flops, moved = kernel.work(samples)
    return times * flops, times * moved


def _bytes(elements: float) -> float:
    return float(_ELEMENT * elements)


def _logarithms(sizes: Mapping[str, float], work: tuple[float, float]) -> dict[str, float]:
    """Return binary logarithms: times are products of sizes, so that a model of them is nearly a sum."""
    return {name: math.log2(value) for name, value in {**sizes, "flops": work[0], "bytes": work[1]}.items()}
