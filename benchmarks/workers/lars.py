"""One rank of `python -m benchmarks.lars`: the trust ratios of a model's layers, each way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.shapes import SHAPES
from roundelay.torch.optim.norms import norms, shares
from roundelay.torch.optim.trust_ratios import Layers, TrustRatios

_TRUST, _DECAY = 1e-3, 1e-4


def _quotient(weights: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    quotient: torch.Tensor = weights * _TRUST / (gradients + weights * _DECAY)
    return quotient


class _Model:
    """The layers of a model with random weights and gradients, equal on all ranks."""

    def __init__(self, name: str) -> None:
        generator = torch.Generator().manual_seed(0)
        shapes = SHAPES[name]()
        self.weights = [torch.randn(shape, generator=generator) for shape in shapes]
        self.gradients = [torch.randn(shape, generator=generator) for shape in shapes]
        everything = range(len(shapes))
        names, sizes = list(map(str, everything)), [weight.nbytes for weight in self.weights]
        self.layers = Layers(names, sizes, [True] * len(shapes), (), self.multi_tensor)
        self._trust = TrustRatios("LARS", True, hvd.global_process_set)
        self._everything = everything
        for _ in range(2):  # the ranks agree and compare, and the response cache learns the operation
            self.shared()

    def per_layer(self) -> list[float]:
        """Compute each norm and ratio alone, as the loops of simple implementations do."""
        found = []
        for weight, gradient in zip(self.weights, self.gradients, strict=True):
            one, other = weight.norm().double(), gradient.norm().double()
            found.append(float(_quotient(one, other)))
        return found

    def multi_tensor(self, numbers: Sequence[int]) -> torch.Tensor:
        """Compute the ratios of some layers with the multi-tensor norm."""
        weights = norms([self.weights[number] for number in numbers])
        return _quotient(weights, norms([self.gradients[number] for number in numbers]))

    def local(self) -> list[float]:
        """Compute all ratios on this rank."""
        found: list[float] = self.multi_tensor(self._everything).tolist()
        return found

    def shared(self) -> list[float]:
        """Compute this rank's share and get the others'."""
        with self._trust.begin(0):
            pass
        self._trust.agree(list)
        return self._trust.ratios(self.layers)


def _measure(name: str, spec: dict[str, Any], ranks: measure.Ranks) -> dict[str, Any]:
    model = _Model(name)
    ways: dict[str, Callable[[], list[float]]] = {
        "per layer": model.per_layer,
        "multi-tensor": model.local,
        "shared": model.shared,
    }
    expected = model.local()
    assert model.shared() == expected, "the shared ratios have other bits"

    def turn(way: Callable[[], list[float]]) -> measure.Turn:
        def run() -> list[float]:
            ranks.meet()
            return [measure.timed(way) for _ in range(spec["calls"])]

        return run

    found = measure.take_turns({way: turn(run) for way, run in ways.items()}, spec["repetitions"])
    sizes = model.layers.sizes
    largest = max(sum(sizes[number] for number in numbers) for numbers in shares(sizes, ranks.size))
    return {
        "model": name,
        "layers": len(sizes),
        "bytes": sum(sizes),
        "largest_share": largest,
        "seconds": {way: [min(calls) for calls in all_] for way, all_ in found.seconds.items()},
        "others": found.others,
    }


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all models of the spec."""
    ranks = measure.Ranks(spec)
    hvd.init()
    cells = [_measure(name, spec, ranks) for name in spec["models"]]
    hvd.shutdown()
    ranks.leave()
    return {"cells": cells}


if __name__ == "__main__":
    measure.worker(main)
