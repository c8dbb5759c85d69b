"""Draws the kernels to measure: sizes as layers have them, evenly on a logarithmic scale. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from roundelay.tuning.kernels.kinds import (
    KINDS,
    OPERATIONS,
    Convolution,
    ElementWise,
    Kernel,
    MatrixProduct,
    Normalisation,
    Update,
)

_CHANNELS = (16, 2048)
_SAMPLES = (1, 128)
_SIDES = (7, 112)


@dataclass(frozen=True, slots=True)
class Shape:
    """A kernel with its number of samples."""

    kernel: Kernel
    samples: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest shapes: arithmetic operations and bytes of forward."""

    flops: float
    bytes: float


def shapes(kind: str, seed: int, limits: Limits) -> Iterator[Shape]:
    """Yields shapes of one kind without end, the same ones for the same seed."""
    random = Random(f"{kind} {seed}")
    while True:
        shape = _DRAW[kind](random)
        flops, moved = shape.kernel.work(shape.samples)
        if flops <= limits.flops and moved <= limits.bytes:
            yield shape


def _between(random: Random, low: float, high: float) -> int:
    """Returns a whole number, evenly on a logarithmic scale; most sizes of layers are multiples of 8."""
    number = round(low * float((high / low) ** random.random()))
    return number if number < 64 else 8 * round(number / 8)


def _convolution(random: Random) -> Shape:
    images = random.random() < 0.15  # the first layer, whose windows and strides are large
    kernel = random.choices((1, 3, 5, 7, 11), (0, 3, 1, 3, 3) if images else (8, 8, 2, 1, 1))[0]
    stride = random.choices((1, 2, 4), (6, 4 if images else 2, 0 if kernel < 5 else 3 if images else 1))[0]
    inputs = 3 if images else _between(random, *_CHANNELS)
    side = _between(random, *_SIDES) if random.random() < 0.9 or stride > 1 else 224
    return Shape(
        Convolution(inputs, _between(random, *_CHANNELS), kernel, side, stride), _between(random, *_SAMPLES)
    )


def _matrix_product(random: Random) -> Shape:
    if random.random() < 0.2:  # attention: many products without weights
        side, inner = _between(random, 32, 2048), _between(random, 16, 256)
        rows, inner, columns = (side, inner, side) if random.random() < 0.5 else (side, side, inner)
        return Shape(MatrixProduct(rows, inner, columns, _between(random, 2, 32)), _between(random, 1, 32))
    rows = 1 if random.random() < 0.5 else _between(random, 16, 1024)
    inner, columns = _between(random, 64, 32768), _between(random, 64, 65536)
    return Shape(MatrixProduct(rows, inner, columns), _between(random, *_SAMPLES))


def _normalisation(random: Random) -> Shape:
    by_place = random.random() < 0.3
    places = _between(random, 16, 2048) if by_place else _between(random, *_SIDES) ** 2
    return Shape(Normalisation(_between(random, *_CHANNELS), places, by_place), _between(random, *_SAMPLES))


def _element_wise(random: Random) -> Shape:
    return Shape(ElementWise(random.choice(list(OPERATIONS)), _between(random, 1 << 12, 1 << 27)), 1)


def _update(random: Random) -> Shape:
    return Shape(Update(_between(random, 1 << 12, 1 << 23)), 1)


_DRAW: dict[str, Callable[[Random], Shape]] = dict(
    zip(KINDS, (_convolution, _matrix_product, _normalisation, _element_wise, _update), strict=True)
)
