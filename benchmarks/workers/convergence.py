"""Trains a task with each strategy and seed, and records the test loss and what was sent.

"sent" is a part of the bytes of gradients; with a strategy that sends parameters it is the number of models
that a node has sent, by the number of steps. In the spec: `nodes`: the ranks take themselves for so many
nodes (without it, each rank for one); `steady`: strategies get losses that fall; `rate`: a multiple of the
task's learning rate; `falls`: whether it falls to zero at the end; `optimizer`: "sgd" (without it) or
"adamw". All gradients are one bucket: csc and topk share out what they send by bucket, and measured sizes
of buckets would give another training in each run.
"""

from __future__ import annotations

import os
import statistics
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


def _messages(before: int, nodes: int, strategy: hvd.strategies.Strategy) -> float:
    """Return how many models each node has sent since `before` were sent by this rank."""
    own = torch.tensor([float(hvd.stats()["parameter_transfers"] - before)])
    senders = nodes if isinstance(strategy, hvd.strategies.DASO) else hvd.size()
    return float(hvd.allreduce(own, op=hvd.Sum)) / senders


def end_epoch(strategy: hvd.strategies.Strategy | None, loss: float) -> None:
    """Let the ranks have the same parameters, before a test."""
    if isinstance(strategy, hvd.strategies.DASO):
        strategy.epoch_ended(loss)
    elif isinstance(strategy, hvd.strategies.LocalSGD):
        strategy.average()


def _plain(optimizer: str, task: Task, rate: float) -> torch.optim.Optimizer:
    parameters = task.model.parameters()
    if optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=rate * task.adam_rate)
    return torch.optim.SGD(parameters, lr=rate * task.rate, momentum=_MOMENTUM, weight_decay=_WEIGHT_DECAY)


def _train(name: str, text: str, seed: int, spec: dict[str, Any]) -> dict[str, Any]:
    """Train once. All ranks end with the same model, and rank 0 tests it."""
    steps, every = spec["steps"], spec["every"]
    rate, falls = spec.get("rate", 1.0), spec.get("falls", True)
    torch.manual_seed(seed)
    task = TASKS[name]()
    plain = _plain(spec.get("optimizer", "sgd"), task, rate)
    chosen, no_feedback, _ = text.partition(NO_FEEDBACK)
    optimizer = hvd.DistributedOptimizer(plain, task.model.named_parameters(), strategy=chosen)
    strategy = hvd.strategies.of(optimizer)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, steps, falls))
    hvd.broadcast_parameters(task.model.state_dict(), root_rank=0)
    torch.manual_seed(seed * hvd.size() + hvd.rank())  # each rank draws its own masks
    before, transfers, curve = _sent(), hvd.stats()["parameter_transfers"], []
    losses: list[float] = []
    for step, batch in enumerate(batches(task, steps, seed), 1):
        optimizer.zero_grad()
        mine = batch.tensor_split(hvd.size())[hvd.rank()]
        # The average over the ranks is the batch's mean, also where shares differ.
        loss = task.loss(task.model, mine) * (hvd.size() / BATCH)
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(float(loss.detach()))
        optimizer.step()
        if no_feedback:
            hvd.strategies.of(optimizer).rescale(0.0)  # of what is kept back nothing is left
        scheduler.step()
        if step % every == 0 or step == steps:
            end_epoch(strategy, 2.0 ** -(step // every) if spec.get("steady") else statistics.mean(losses))
            losses.clear()
            if hvd.rank() == 0:
                curve.append((step, *_tested(task)))
    sent, gradients = (after - start for after, start in zip(_sent(), before, strict=True))
    part = sent / gradients if gradients else 1.0
    if isinstance(strategy, hvd.strategies.DASO | hvd.strategies.LocalSGD):
        part = _messages(transfers, spec["nodes"], strategy) / steps
    return {"strategy": text, "seed": seed, "curve": curve, "sent": part}


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Carry out the trainings of the spec."""
    ranks = measure.Ranks(spec)
    nodes = spec.setdefault("nodes", ranks.size)
    os.environ["ROUNDELAY_NODE_ID"] = str(ranks.rank * nodes // ranks.size)
    os.environ.setdefault("ROUNDELAY_THETA", str(1 << 27))
    hvd.init()
    runs = [
        _train(spec["task"], strategy, seed, spec)
        for seed in spec["seeds"]
        for strategy in spec["strategies"]
    ]
    hvd.shutdown()
    ranks.leave()
    return {"runs": runs} if ranks.rank == 0 else {}


if __name__ == "__main__":
    measure.worker(main)
