"""One rank of `python -m benchmarks.train_step`."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.bare import floor
from benchmarks.contenders import STEPS, Training
from benchmarks.models import MODELS, Task
from benchmarks.workers.training import Trainee

_LEARNING_RATE = 0.01
_TOLERANCE = 1e-5  # relative to a tensor's largest value, because the order of additions differs
_HALF_TOLERANCE = 0.02  # likewise where gradients travel with 8 bits, and sums between nodes are rounded
_SEED = 100


class _Turn(Trainee):
    """One way to synchronise. It trains its own copy of the model with the same batches as the others."""

    def __init__(self, task: Task, contender: Training, ranks: measure.Ranks) -> None:
        super().__init__(task, contender, _LEARNING_RATE, 0.0, _SEED + ranks.rank)
        self._ranks = ranks
        self._cpu: list[float] = []
        self._under_way: list[float] = []

    def __call__(self) -> list[float]:
        batch = self.batch()
        self._ranks.meet()
        begin, under_way = time.process_time(), _under_way()
        seconds = measure.timed(lambda: self.step(batch))
        self._cpu.append(time.process_time() - begin)
        self._under_way.append(_under_way() - under_way)
        return [seconds]

    def under_way(self, repetitions: int) -> list[float]:
        """Return the seconds of each of the last steps in which Roundelay had an operation under way."""
        return self._under_way[-repetitions:]

    def cpu(self, repetitions: int) -> list[float]:
        """Return the CPU seconds of each of the last steps, all threads included: the mean over ranks."""
        spent = torch.tensor(self._cpu[-repetitions:], dtype=torch.float64)
        dist.all_reduce(spent)
        mean: list[float] = spent.div_(self._ranks.size).tolist()
        return mean


def _under_way() -> float:
    return hvd.stats()["under_way_ns"] * 1e-9


def _check(turns: dict[str, _Turn], names: Iterable[str]) -> None:
    """Check that all ways give equal gradients from equal weights and batches.

    Weights after many steps would not be comparable: near the 0 of a ReLU, the last bit of a sum grows to
    percents.
    """
    model = copy.deepcopy(turns["ddp"].model)
    expected = turns["ddp"].gradients(model)
    for name in names:
        for gradient, other in zip(turns[name].gradients(model), expected, strict=True):
            tolerance = _HALF_TOLERANCE if "bf16" in name else _TOLERANCE
            if float((gradient - other).abs().max()) > tolerance * float(other.abs().max()):
                raise RuntimeError(f"{name} has other gradients than DDP")


# fp16 loses the least gradients, and who is silent has those of one rank.
_UNCHECKED = ("none", "ddp", "ddp fp16", "silent ddp", "silent plain ddp")


def _measure(model: str, spec: dict[str, Any], ranks: measure.Ranks) -> dict[str, Any]:
    torch.manual_seed(1)
    task = MODELS[model]()
    turns = {name: _Turn(task, STEPS[name], ranks) for name in spec["ways"]}
    parameters = list(task.model.parameters())
    size = sum(p.numel() * p.element_size() for p in parameters)
    repetitions = spec["repetitions"]
    with floor(size, spec, ranks) as bare:
        found = measure.take_turns({**turns, **bare}, repetitions, warmups=4)
    cpu = {name: turn.cpu(repetitions) for name, turn in turns.items()}
    _check(turns, (name for name in turns if name not in _UNCHECKED))
    return {
        "model": model,
        "tensors": len(parameters),
        "bytes": size,
        "seconds": found.single(),
        "cpu": cpu,
        "under_way": {name: turn.under_way(repetitions) for name, turn in turns.items()},
        "others": found.others,
    }


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all models of the spec, each in all its ways; "none" and "ddp" are always among them."""
    ranks = measure.Ranks(spec)
    hvd.init()
    cells = [_measure(model, spec, ranks) for model in spec["models"]]
    ranks.leave()
    return {"cells": cells}


if __name__ == "__main__":
    measure.worker(main)
