"""One rank of `python -m benchmarks.plan.gate`: Auto after its trial, and its candidates, turn by turn."""

from __future__ import annotations

from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.plan.sleeping import Model, step
from benchmarks.plan.tasks import AUTO, STEPS, TASKS, Task

_MOST_STEPS = 200  # of a trial
_TURN = 2  # steps


class _Turn:
    """Trains a copy of the model with one strategy."""

    def __init__(self, task: Task, strategy: str | hvd.strategies.Strategy, ranks: measure.Ranks) -> None:
        self._ranks = ranks
        self._model = Model(task, ranks.rank)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-6, momentum=0.9)
        hvd.DistributedOptimizer(self._optimizer, self._model.named_parameters(), strategy=strategy)

    def train(self, steps: int) -> None:
        """Take so many steps."""
        for _ in range(steps):
            step(self._model, self._optimizer)

    def __call__(self) -> list[float]:
        self._ranks.meet()
        seconds = measure.timed(lambda: self.train(_TURN))
        self._ranks.rest()
        return [seconds / _TURN]


def _settle(turn: _Turn, auto: hvd.strategies.Auto) -> str:
    """Train until the trial is over; return what was chosen."""
    before = auto.choice
    for _ in range(_MOST_STEPS):
        turn.train(1)
        choice: str = hvd.broadcast_object(auto.choice, root_rank=0)
        if choice != before:
            turn.train(1)  # all change in this step
            return choice
    raise RuntimeError(f"strategy auto has not chosen after {_MOST_STEPS} steps")


def _measure(task: Task, spec: dict[str, Any], ranks: measure.Ranks) -> dict[str, Any]:
    auto = hvd.strategies.Auto(spec.get("candidates"), loss=spec.get("loss"))
    turns = {name: _Turn(task, name, ranks) for name in spec["throughout"]}
    for turn in turns.values():
        turn.train(STEPS)  # then the pool has its buckets
    own = _Turn(task, auto, ranks)
    choice = _settle(own, auto)
    found = measure.take_turns({**turns, AUTO: own}, spec["repetitions"])
    return {"choice": choice, "seconds": found.single(), "others": found.others}


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure each task: `candidates` are Auto's, and the strategies `throughout` each train alone."""
    ranks = measure.Ranks(spec)
    hvd.init()
    cells = [{"task": name, **_measure(TASKS[name], spec, ranks)} for name in spec["tasks"]]
    hvd.shutdown()
    ranks.leave()
    return {"cells": cells}


if __name__ == "__main__":
    measure.worker(main)
