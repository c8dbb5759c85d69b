"""Learns the times of kernels from samples, with scikit-learn, which the extra `roundelay[plan]` brings."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Sequence
from random import Random

import numpy as np
import numpy.typing as npt

from roundelay.tuning.kernels.kinds import directions, work
from roundelay.tuning.kernels.sampling import Shape
from roundelay.tuning.kernels.times import Errors, Input, KernelTimes, NetLayer, Roofline
from roundelay.tuning.kernels.timing import Sample

FEWEST = 20  # shapes of a kind; fewer teach nothing
_TESTED = 0.2  # the part of the shapes that the test keeps
_HIDDEN = (16, 16)  # neurons
_DECAY = 1.0  # the weights' decay, as scikit-learn counts it: a sum over all samples
_DIGITS = 6  # the digits of weights in the file
_SEED = 0


def learn(kind: str, samples: Sequence[Sample]) -> list[KernelTimes]:
    """Fits a roofline and a network to each direction. A fifth of the shapes is for the test alone.

    The network is left out unless its median error on those is below the roofline's. ImportError: there is no
    scikit-learn. ValueError: there are too few samples.
    """
    if len(samples) < FEWEST:
        raise ValueError(f"{len(samples)} shapes of kind {kind!r} were measured, {FEWEST} are needed")
    shuffled = list(samples)
    Random(_SEED).shuffle(shuffled)
    tested = round(_TESTED * len(shuffled))
    return [_learn(kind, direction, shuffled[tested:], shuffled[:tested]) for direction in directions(kind)]


def _learn(kind: str, direction: str, taught: Sequence[Sample], tested: Sequence[Sample]) -> KernelTimes:
    def seconds(samples: Sequence[Sample]) -> list[float]:
        return [getattr(sample, direction) for sample in samples]

    shapes = [sample.shape for sample in taught]
    roofline = fit_roofline([work(one.kernel, one.samples, direction) for one in shapes], seconds(taught))
    bounds = [roofline.seconds(*work(one.kernel, one.samples, direction)) for one in shapes]
    targets = np.log(np.array(seconds(taught)) / np.array(bounds))
    inputs, network = _fit_network(shapes, targets)
    none = Errors(0.0, 0.0)
    alone = KernelTimes(kind, direction, len(taught), len(tested), roofline, none, none, inputs, ())
    learned = dataclasses.replace(alone, network=network)

    def errors(model: KernelTimes) -> Errors:
        wrong = [
            abs(model.seconds(one.shape.kernel, one.shape.samples) / measured - 1)
            for one, measured in zip(tested, seconds(tested), strict=True)
        ]
        return Errors(float(np.median(wrong)), float(np.quantile(wrong, 0.9)))

    own, other = errors(alone), errors(learned)
    better = other.median < own.median
    return dataclasses.replace(learned if better else alone, roofline_errors=own, network_errors=other)


def fit_roofline(works: Sequence[tuple[float, float]], seconds: Sequence[float]) -> Roofline:
    """Finds the rates with the least mean error of the logarithm, by a search along each of them.

    works: arithmetic operations and bytes of each measured time.
    """
    flops, moved = np.array(works).T
    measured = np.array(seconds)

    def wrong(logs: npt.NDArray[np.float64]) -> float:
        overhead, rate, bandwidth = np.exp(logs)
        predicted = overhead + np.maximum(flops / rate, moved / bandwidth)
        return float(np.mean(np.abs(np.log(predicted / measured))))

    found = np.log([measured.min(), (flops / measured).max(), (moved / measured).max()])
    least, step = wrong(found), 1.0
    while step > 1e-3:
        tries = [found + sign * step * axis for axis in np.eye(3) for sign in (-1, 1)]
        best = min(tries, key=wrong)
        if wrong(best) < least:
            found, least = best, wrong(best)
        else:
            step /= 2
    return Roofline(*map(_rounded, np.exp(found)))


def _fit_network(
    shapes: Sequence[Shape], targets: npt.NDArray[np.float64]
) -> tuple[tuple[Input, ...], tuple[NetLayer, ...]]:
    """Trains a network; returns its inputs and its layers."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    features = [one.kernel.features(one.samples) for one in shapes]
    columns = {name: np.array([one[name] for one in features]) for name in features[0]}
    inputs = tuple(
        Input(
            name,
            _rounded(values.mean()),
            _rounded(values.std() or 1.0),
            float(values.min()),
            float(values.max()),
        )
        for name, values in columns.items()
    )
    scaled = np.stack([(columns[one.name] - one.mean) / one.scale for one in inputs], axis=1)
    spread = float(targets.std()) or 1.0
    centre = float(targets.mean())
    machine = MLPRegressor(
        hidden_layer_sizes=_HIDDEN,
        activation="tanh",
        solver="lbfgs",
        alpha=_DECAY,
        max_iter=2000,
        random_state=_SEED,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(scaled, (targets - centre) / spread)
    weights = [matrix.T for matrix in machine.coefs_]
    biases = list(machine.intercepts_)
    weights[-1], biases[-1] = spread * weights[-1], spread * biases[-1] + centre
    return inputs, tuple(
        NetLayer(tuple(tuple(map(_rounded, row)) for row in matrix), tuple(map(_rounded, bias)))
        for matrix, bias in zip(weights, biases, strict=True)
    )


def _rounded(value: float) -> float:
    """Keeps a few digits: the file stays short, and times are not as exact."""
    number = float(value)
    return round(number, _DIGITS - 1 - math.floor(math.log10(abs(number)))) if number else 0.0
