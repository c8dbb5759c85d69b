"""One rank of `python -m benchmarks.averaging.steps`: trains copies of a model, turn by turn."""

from __future__ import annotations

import os
from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.contenders import AVERAGING, Training
from benchmarks.models import Batch, Task, cnn
from benchmarks.workers.training import Trainee
from roundelay.torch.strategies import DASO, LocalSGD

_TURNS = 2  # cycles that a turn measures, after one that it does not


class _Turn(Trainee):
    """Trains a copy of the model for some cycles; nothing is on the wire between turns."""

    def __init__(self, contender: Training, task: Task, ranks: measure.Ranks) -> None:
        super().__init__(task, contender, 0.01, 0.9, hvd.rank())
        self._ranks, self._cycle = ranks, contender.cycle
        self.sent: list[float] = []
        self.late: list[int] = []

    def __call__(self) -> list[float]:
        batch = self.batch()
        self._steps(batch, self._cycle)
        self._ranks.meet()
        before, late = measure.sent(), hvd.stats()["late_merges"]
        steps = _TURNS * self._cycle
        seconds = measure.timed(lambda: self._steps(batch, steps))
        self._ranks.meet()
        self.sent.append((measure.sent() - before) / steps)
        self.late.append(hvd.stats()["late_merges"] - late)
        if isinstance(self.strategy, DASO | LocalSGD):
            self.strategy.average()  # waits for what is on the wire, and begins a cycle
        self._ranks.rest()
        return [seconds / steps]

    def _steps(self, batch: Batch, steps: int) -> None:
        for _ in range(steps):
            self.step(batch)


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Train with all contenders of the spec, turn by turn."""
    # A pool whose buckets are tried while others measure would be cut in a turn of its own.
    os.environ["ROUNDELAY_AUTOTUNE"] = "0"
    ranks = measure.Ranks(spec)
    hvd.init()
    torch.manual_seed(1)
    task = cnn()
    turns = {name: _Turn(AVERAGING[name], task, ranks) for name in spec["contenders"]}
    found = measure.take_turns(turns, spec["repetitions"], 1)
    kept = spec["repetitions"]
    result = {
        "bytes": sum(one.numel() * one.element_size() for one in task.model.parameters()),
        "seconds": found.single(),
        "others": found.others,
        "sent": {name: turn.sent[-kept:] for name, turn in turns.items()},
        "late": {name: sum(turn.late[-kept:]) for name, turn in turns.items()},
    }
    hvd.shutdown()
    ranks.leave()
    return result


if __name__ == "__main__":
    measure.worker(main)
