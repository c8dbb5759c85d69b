"""A step of training without its communication: times, and the sizes and ready times of gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from roundelay.plan.shapes import Shape
from roundelay.tuning.kernels.kinds import BACKWARD_WORK as BACKWARD


@dataclasses.dataclass(frozen=True, slots=True)
class Gradient:
    """A gradient. `ready` counts seconds from the beginning of backward."""

    name: str
    elements: int
    ready: float
    shape: tuple[int, int] = (1, 0)  # the matrix's: the first dimension, and the product of the others


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """One rank's step without communication. Times are seconds."""

    name: str
    gradients: tuple[Gradient, ...]
    forward: float
    backward: float
    update: float = 0.0
    samples: float = 1.0  # the samples of one rank in a step
    element: int = 4  # bytes of an element in `.grad`
    source: str = ""  # names the source of the times
    error: float = 0.0  # the times' relative error; 0: they were measured or stated
    outside: str = ""  # a sentence if the times are out of the calibrated range; "": they are not

    @property
    def bytes(self) -> int:
        """The bytes of all gradients."""
        return self.element * sum(gradient.elements for gradient in self.gradients)

    @property
    def compute(self) -> float:
        """The seconds of a step without communication."""
        return self.forward + self.backward + self.update

    def faster(self, factor: float) -> Workload:
        """Return the same step on a machine that computes `factor` times as fast."""
        return dataclasses.replace(
            self,
            gradients=tuple(dataclasses.replace(g, ready=g.ready / factor) for g in self.gradients),
            forward=self.forward / factor,
            backward=self.backward / factor,
            update=self.update / factor,
        )


def _matrix(elements: int, rows: int) -> tuple[int, int]:
    return rows, elements // rows


def from_layers(
    shape: Shape, forward: Sequence[float], backward: Sequence[float], samples: float, *, element: int = 4
) -> Workload:
    """Make the step of a known model from its layers' times, in forward order. Backward begins at the end."""
    now = 0.0
    gradients = []
    for layer, seconds in zip(reversed(shape.layers), reversed(backward), strict=True):
        now += seconds
        gradients += [
            Gradient(
                f"{layer.name}.{index}", elements, now, _matrix(elements, layer.rows if index == 0 else 1)
            )
            for index, elements in reversed(list(enumerate(layer.gradients)))
        ]
    return Workload(
        shape.name, tuple(gradients), forward=sum(forward), backward=now, samples=samples, element=element
    )


def from_shape(shape: Shape, compute: float, samples: float, *, element: int = 4) -> Workload:
    """Divide a step's `compute` seconds over the layers of a known model, by their flops.

    A third is forward's, two thirds backward's, which goes from the last layer to the first.
    """
    unit = compute / (1 + BACKWARD) / shape.flops
    forward = [unit * layer.flops for layer in shape.layers]
    step = from_layers(shape, forward, [BACKWARD * each for each in forward], samples, element=element)
    source = f"shapes of {shape.name}, {compute:g} s of compute a step"
    return dataclasses.replace(step, source=source)


@dataclasses.dataclass(frozen=True, slots=True)
class Roofline:
    """The limits of a device (Williams et al. 2009): a layer takes the longer of the times by the two."""

    flops: float  # floating-point operations a second
    bandwidth: float  # bytes a second that its memory reads and writes

    def seconds(self, shape: Shape, samples: float, element: int = 4) -> list[float]:
        """Return the time of each layer's forward."""
        return [
            max(
                layer.flops * samples / self.flops,
                element * (layer.activations * samples + layer.elements) / self.bandwidth,
            )
            for layer in shape.layers
        ]

    def workload(self, shape: Shape, samples: float) -> Workload:
        """Model a step; backward takes twice as long as forward."""
        times = self.seconds(shape, samples)
        step = from_layers(shape, times, [BACKWARD * each for each in times], samples)
        text = f"shapes of {shape.name} on a roofline of {self.flops:.3g} flop/s, {self.bandwidth:.3g} B/s"
        return dataclasses.replace(step, source=text)
