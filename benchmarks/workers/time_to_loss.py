"""One rank of `python -m benchmarks.time_to_loss`: trains with each contender, and tells seconds and losses.

Seconds are those of training alone: the clock stands while rank 0 tests.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.contenders import EPOCHS, TIME_TO_LOSS, Training
from benchmarks.gradientflow.task import Digits
from benchmarks.models import task_loss
from benchmarks.tasks import rate_at
from benchmarks.workers.convergence import end_epoch
from benchmarks.workers.training import Trainee
from examples import digits as digits_example

_RATE, _MOMENTUM, _WIDTH = 0.1, 0.9, 16


class _Run:
    """A training with one contender and one seed."""

    def __init__(self, contender: Training, seed: int, steps: int) -> None:
        torch.manual_seed(seed)
        task = Digits(digits_example.make_model(_WIDTH))
        self.test_loss = task.test_loss
        self.trainee = Trainee(task, contender, _RATE, _MOMENTUM, seed * hvd.size() + hvd.rank())
        self._steps = steps // EPOCHS
        self._rate = torch.optim.lr_scheduler.LambdaLR(
            self.trainee.optimizer, lambda step: rate_at(step, steps)
        )

    def epoch(self) -> None:
        """Train a part of the steps."""
        losses = []
        for _ in range(self._steps):
            inputs, classes = self.trainee.batch()
            self.trainee.optimizer.zero_grad()
            loss = task_loss(self.trainee.called, inputs, classes)
            loss.backward()  # type: ignore[no-untyped-call]
            self.trainee.optimizer.step()
            self._rate.step()
            losses.append(float(loss.detach()))
        end_epoch(self.trainee.strategy, statistics.mean(losses))


def _train(name: str, seed: int, spec: dict[str, Any], ranks: measure.Ranks) -> dict[str, Any]:
    run = _Run(TIME_TO_LOSS[name], seed, spec["steps"])
    seconds, losses = [], []
    for _ in range(EPOCHS):
        ranks.meet()
        seconds.append(measure.timed(run.epoch))
        ranks.rest()
        losses.append(run.test_loss(run.trainee.model) if ranks.rank == 0 else 0.0)
    return {"contender": name, "seed": seed, "seconds": seconds, "losses": losses}


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Carry out the trainings of the spec."""
    ranks = measure.Ranks(spec)
    hvd.init()
    runs = [_train(name, seed, spec, ranks) for seed in range(spec["seeds"]) for name in spec["contenders"]]
    hvd.shutdown()
    ranks.leave()
    return {"runs": runs}


if __name__ == "__main__":
    measure.worker(main)
