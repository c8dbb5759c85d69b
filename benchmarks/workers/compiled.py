"""One rank of `python -m benchmarks.compiled`: steps of compiled models, and their communication."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.contenders import STEPS
from benchmarks.models import MODELS, Task
from benchmarks.workers.training import Trainee

_RATE, _SEED, _WARMUPS = 0.01, 100, 8  # steps until the pool has its cuts, and all is compiled
# How gradients are averaged, and what the model is compiled with.
_Compiler = Callable[..., Any]
WAYS: dict[str, tuple[str, _Compiler]] = {
    "eager": ("roundelay", lambda model: model),
    "torch.compile": ("roundelay", torch.compile),
    "hvd.compile": ("roundelay", hvd.compile),
    "DDP with Gloo, torch.compile": ("plain ddp", torch.compile),
    "alone, torch.compile": ("none", torch.compile),
}
_CLOCKS = ("under_way_ns", "exposed_ns")


class _Net(nn.Module):
    """A model. Under DDP Dynamo does not compile frames of torch.nn, such as a Sequential's."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: torch.Tensor) -> Any:
        return self.model(batch)


class _Turn(Trainee):
    """One way to train its own copy of the model, with the same batches as the others."""

    def __init__(self, task: Task, way: str, ranks: measure.Ranks) -> None:
        contender, compiler = WAYS[way]
        super().__init__(task, STEPS[contender], _RATE, 0.0, _SEED + ranks.rank)
        self.called = compiler(self.called)
        self._ranks = ranks
        self._clocks: list[list[int]] = []

    def __call__(self) -> list[float]:
        batch = self.batch()
        self._ranks.meet()
        before = hvd.stats()
        seconds = measure.timed(lambda: self.step(batch))
        after = hvd.stats()
        self._clocks.append([after[clock] - before[clock] for clock in _CLOCKS])
        return [seconds]

    def clocks(self, repetitions: int) -> list[float]:
        """Return the seconds of all measured steps in which something was under way, and exposed."""
        return [sum(of) / 1e9 for of in zip(*self._clocks[-repetitions:], strict=True)]


def _cell(model: str, ranks: measure.Ranks, repetitions: int) -> dict[str, Any]:
    torch.manual_seed(1)
    task = MODELS[model]()
    task = dataclasses.replace(task, model=_Net(task.model))
    turns = {way: _Turn(task, way, ranks) for way in WAYS}
    found = measure.take_turns(dict[str, measure.Turn](turns), repetitions, warmups=_WARMUPS)
    return {
        "model": model,
        "seconds": found.single(),
        "others": found.others,
        "clocks": {way: turns[way].clocks(repetitions) for way in WAYS if WAYS[way][0] == "roundelay"},
        "apart": _apart({way: turns[way] for way in WAYS if not way.startswith("alone")}),
    }


def _apart(turns: Mapping[str, _Turn]) -> dict[str, float]:
    """Return by how much gradients of equal weights differ from eager's, in parts of a tensor's largest one.

    Weights after many steps would not be comparable: near the 0 of a ReLU, the last bit of a sum grows to
    percents.
    """
    model = copy.deepcopy(turns["eager"].model)
    expected = turns["eager"].gradients(model)
    return {
        way: max(
            float((one - other).abs().max() / other.abs().max())
            for one, other in zip(turn.gradients(model), expected, strict=True)
        )
        for way, turn in turns.items()
        if way != "eager"
    }


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure each model."""
    ranks = measure.Ranks(spec)
    hvd.init()
    cells = [_cell(model, ranks, spec["repetitions"]) for model in spec["models"]]
    ranks.leave()
    return {"cells": cells}


if __name__ == "__main__":
    measure.worker(main)
