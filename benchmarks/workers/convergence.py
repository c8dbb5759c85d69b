"""Trains a task with each strategy and seed, and records the test loss and what was sent.

Each rank takes itself for a node: strategies that treat nodes differently then have several.
"""

from __future__ import annotations

import os
from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.convergence import NO_FEEDBACK
from benchmarks.tasks import BATCH, TASKS, Task, batches, rate_at

_MOMENTUM, _WEIGHT_DECAY = 0.9, 1e-4


def _tested(task: Task) -> tuple[float, float]:
    task.model.eval()
    with torch.no_grad():
        found = task.test(task.model)
    task.model.train()
    return found


def _sent() -> tuple[int, int]:
    counters = hvd.stats()
    return counters["technique_called_bytes"], counters["technique_bytes"]


def _train(name: str, strategy: str, seed: int, steps: int, every: int) -> dict[str, Any]:
    """Train once. All ranks end with the same model, and rank 0 tests it."""
    torch.manual_seed(seed)
    task = TASKS[name]()
    plain = torch.optim.SGD(
        task.model.parameters(), lr=task.rate, momentum=_MOMENTUM, weight_decay=_WEIGHT_DECAY
    )
    text, no_feedback, _ = strategy.partition(NO_FEEDBACK)
    optimizer = hvd.DistributedOptimizer(plain, task.model.named_parameters(), strategy=text)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, steps))
    hvd.broadcast_parameters(task.model.state_dict(), root_rank=0)
    torch.manual_seed(seed * hvd.size() + hvd.rank())  # each rank draws its own masks
    before, curve = _sent(), []
    for step, batch in enumerate(batches(task, steps, seed), 1):
        optimizer.zero_grad()
        mine = batch.tensor_split(hvd.size())[hvd.rank()]
        # The average over the ranks is the batch's mean, also where shares differ.
        (task.loss(task.model, mine) * (hvd.size() / BATCH)).backward()
        optimizer.step()
        if no_feedback:
            hvd.strategies.of(optimizer).rescale(0.0)  # of what is kept back nothing is left
        scheduler.step()
        if hvd.rank() == 0 and (step % every == 0 or step == steps):
            curve.append((step, *_tested(task)))
    sent, gradients = (after - start for after, start in zip(_sent(), before, strict=True))
    return {
        "strategy": strategy,
        "seed": seed,
        "curve": curve,
        "sent": sent / gradients if gradients else 1.0,
    }


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Carry out the trainings of the spec."""
    ranks = measure.Ranks(spec)
    os.environ["ROUNDELAY_NODE_ID"] = str(ranks.rank)
    hvd.init()
    runs = [
        _train(spec["task"], strategy, seed, spec["steps"], spec["every"])
        for seed in range(spec["seeds"])
        for strategy in spec["strategies"]
    ]
    hvd.shutdown()
    ranks.leave()
    return {"runs": runs} if ranks.rank == 0 else {}


if __name__ == "__main__":
    measure.worker(main)
