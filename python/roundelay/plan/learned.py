"""Makes a known model's step from the times of its kernels, which `roundelay tune --layers` has learned."""

from __future__ import annotations

import dataclasses

from roundelay.plan.shapes import Layer, Shape
from roundelay.plan.units import date_text
from roundelay.plan.workload import Workload, from_layers
from roundelay.tuning.kernels.kinds import BACKWARD, FORWARD, Kernel, Update
from roundelay.tuning.kernels.times import LayerTimes


def from_times(shape: Shape, times: LayerTimes, samples: float, origin: str) -> Workload:
    """Add up the times of the layers' kernels, and of an update with momentum.

    samples: the samples of one rank in a step. origin: the name of the file with the times.
    """
    runs = [
        (kernel, samples, direction)
        for direction in (FORWARD, BACKWARD)
        for layer in shape.layers
        for kernel in layer.kernels
    ]
    updates = [Update(elements) for layer in shape.layers for elements in layer.gradients]
    runs += [(update, 1.0, FORWARD) for update in updates]

    def seconds(kernel: Kernel, count: float, direction: str) -> float:
        return times.of(kernel, direction).seconds(kernel, count)

    def of(layer: Layer, direction: str) -> float:
        return sum(seconds(kernel, samples, direction) for kernel in layer.kernels)

    forward, backward = (
        [of(layer, direction) for layer in shape.layers] for direction in (FORWARD, BACKWARD)
    )
    step = from_layers(shape, forward, backward, samples)
    # Errors of one kind may all point the same way, so they count as a whole.
    wrong = sum(seconds(*run) * times.of(run[0], run[2]).errors.median for run in runs)
    beyond = sum(times.of(run[0], run[2]).is_outside(run[0], run[1]) for run in runs)
    rooflines = [f"{one.kind} {one.direction}" for one in times.kernels if not one.network]
    models = f"learned times ({', '.join(rooflines)}: a roofline)" if rooflines else "learned times"
    return dataclasses.replace(
        step,
        update=sum(seconds(update, 1.0, FORWARD) for update in updates),
        source=f"{origin}, {models} of kernels, measured on {times.device} with {times.threads} threads "
        f"({date_text(times.date)})",
        error=wrong / sum(seconds(*run) for run in runs),
        outside=f"outside of the calibrated range: {beyond} of {len(runs)} kernels" if beyond else "",
    )
