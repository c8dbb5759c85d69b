"""What a step of training asks of the network: gradients, their sizes, and when each is ready."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from roundelay.plan.shapes import Shape

# Backward computes two gradients of a layer, of its weights and of its inputs, where forward has one product.
BACKWARD = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class Gradient:
    """A gradient, in backward's order. `ready` counts seconds from the beginning of backward."""

    name: str
    elements: int
    ready: float
    shape: tuple[int, int] = (1, 0)  # rows and columns: its first dimension by all others


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """One rank's step without communication: times in seconds."""

    name: str
    gradients: tuple[Gradient, ...]
    forward: float
    backward: float
    update: float = 0.0
    samples: float = 1.0
    element: int = 4  # bytes of an element in `.grad`
    source: str = ""  # where the times come from

    @property
    def bytes(self) -> int:
        """Of all gradients."""
        return self.element * sum(gradient.elements for gradient in self.gradients)

    @property
    def compute(self) -> float:
        """The seconds of a step without communication."""
        return self.forward + self.backward + self.update

    def faster(self, factor: float) -> Workload:
        """The same step on a machine that computes so many times as fast."""
        return dataclasses.replace(
            self,
            gradients=tuple(dataclasses.replace(g, ready=g.ready / factor) for g in self.gradients),
            forward=self.forward / factor,
            backward=self.backward / factor,
            update=self.update / factor,
        )


def _matrix(elements: int, rows: int) -> tuple[int, int]:
    return rows, elements // rows


def from_shape(
    shape: Shape, compute: float, samples: float, *, seconds: Sequence[float] | None = None, element: int = 4
) -> Workload:
    """Divide a step's `compute` seconds over the layers of a known model, by their flops.

    A third is forward's, two thirds backward's, which goes from the last layer to the first. `seconds` weighs
    the layers by their times of forward instead of their flops.
    """
    weights = list(seconds) if seconds is not None else [layer.flops for layer in shape.layers]
    unit = compute / (1 + BACKWARD) / sum(weights)
    now = 0.0
    gradients = []
    for layer, weight in zip(reversed(shape.layers), reversed(weights), strict=True):
        now += BACKWARD * unit * weight
        gradients += [
            Gradient(
                f"{layer.name}.{index}", elements, now, _matrix(elements, layer.rows if index == 0 else 1)
            )
            for index, elements in reversed(list(enumerate(layer.gradients)))
        ]
    return Workload(
        shape.name,
        tuple(gradients),
        forward=unit * sum(weights),
        backward=now,
        samples=samples,
        element=element,
        source=f"shapes of {shape.name}, {compute:g} s of compute a step",
    )
