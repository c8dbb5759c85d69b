"""One rank of `python -m benchmarks.averaging.steps`: trains copies of a model, turn by turn."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.averaging.contenders import CONTENDERS, Contender
from benchmarks.models import Task, cnn, task_loss
from roundelay.torch.strategies import DASO, LocalSGD

_SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")
_TURNS = 2  # cycles that a turn measures, after one that it does not


class _Turn:
    """Trains a copy of the model for some cycles; nothing is on the wire between turns."""

    def __init__(self, contender: Contender, task: Task, ranks: measure.Ranks) -> None:
        self._task, self._ranks, self._cycle = task, ranks, contender.cycle
        self._model = copy.deepcopy(task.model)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01, momentum=0.9)
        if contender.strategy:
            hvd.DistributedOptimizer(
                self._optimizer, self._model.named_parameters(), strategy=contender.strategy
            )
        self._generator = torch.Generator().manual_seed(hvd.rank())
        self.sent: list[float] = []
        self.late: list[int] = []

    def __call__(self) -> list[float]:
        batch = self._task.batch(self._generator)
        self._train(*batch, self._cycle)
        self._ranks.meet()
        before, late = int(_SENT.read_text()), hvd.stats()["late_merges"]
        steps = _TURNS * self._cycle
        seconds = measure.timed(lambda: self._train(*batch, steps))
        self._ranks.meet()
        self.sent.append((int(_SENT.read_text()) - before) / steps)
        self.late.append(hvd.stats()["late_merges"] - late)
        self._end()
        self._ranks.rest()
        return [seconds / steps]

    def _train(self, inputs: torch.Tensor, classes: torch.Tensor, steps: int) -> None:
        for _ in range(steps):
            self._optimizer.zero_grad()
            task_loss(self._model, inputs, classes).backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()

    def _end(self) -> None:
        """Wait for what is on the wire, and begin a cycle."""
        strategy = hvd.strategies.of(self._optimizer) if hasattr(self._optimizer, "no_sync") else None
        if isinstance(strategy, DASO | LocalSGD):
            strategy.average()


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Train with all contenders of the spec, turn by turn."""
    # A pool whose buckets are tried while others measure would be cut in a turn of its own.
    os.environ["ROUNDELAY_AUTOTUNE"] = "0"
    ranks = measure.Ranks(spec)
    hvd.init()
    torch.manual_seed(1)
    task = cnn()
    turns = {name: _Turn(CONTENDERS[name], task, ranks) for name in spec["contenders"]}
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
