"""One rank of benchmarks.crossover and benchmarks.eight_bits: large gradients in several ways, in turn.

"turns" in the spec are texts of strategies; NONE takes steps that nothing reduces, and ALONE takes no step.
"elements" are those of all gradients, and "gradients" is their number: each one is a bucket.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.contenders import ALONE

NONE = "none"
_WARMUPS = 4  # steps: then there are buckets


class _Turn:
    """Takes steps in one way, and counts the bytes that this rank's node sends."""

    def __init__(self, strategy: str, spec: dict[str, Any], ranks: measure.Ranks) -> None:
        self._ranks = ranks
        self.sent: list[int] = []
        self._optimizer: torch.optim.Optimizer | None = None
        if strategy == ALONE:
            return
        sizes = [spec["elements"] // spec["gradients"]] * spec["gradients"]
        generator = torch.Generator().manual_seed(hvd.rank())
        self._parameters = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
        self._gradients = [torch.randn(size, generator=generator) for size in sizes]
        self._optimizer = torch.optim.SGD(self._parameters, lr=0.01)
        if strategy != NONE:
            hvd.DistributedOptimizer(self._optimizer, strategy=strategy)

    def __call__(self) -> list[float]:
        self._ranks.meet()
        before = measure.sent()
        seconds = 0.0 if self._optimizer is None else measure.timed(self._step)
        self._ranks.meet()
        self.sent.append(measure.sent() - before)
        return [seconds]

    def _step(self) -> None:
        assert self._optimizer is not None
        self._optimizer.zero_grad()
        pairs = zip(self._parameters, self._gradients, strict=True)
        sum((one * gradient).sum() for one, gradient in pairs).backward()  # type: ignore[union-attr]
        self._optimizer.step()


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Take the turns of the spec."""
    ranks = measure.Ranks(spec)
    hvd.init()
    warnings.simplefilter("ignore", RuntimeWarning)  # that dense is cheaper is what is measured here
    repetitions = spec["repetitions"]
    turns = {strategy: _Turn(strategy, spec, ranks) for strategy in spec["turns"]}
    found = measure.take_turns(turns, repetitions, _WARMUPS)
    hvd.shutdown()
    ranks.leave()
    return {
        "seconds": found.single(),
        "sent": {name: turn.sent[-repetitions:] for name, turn in turns.items()},
        "others": found.others,
    }


if __name__ == "__main__":
    measure.worker(main)
