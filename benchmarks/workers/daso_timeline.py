"""One rank of `python -m benchmarks.averaging.timeline`: trains with DASO while a timeline is recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.contenders import daso
from benchmarks.models import cnn
from benchmarks.workers.training import Trainee
from roundelay.timeline import analysis, events

_FIRST = 8  # steps before the timeline: memory and connections are new


def _transfers(trace: events.Trace, rank: int) -> dict[str, list[float]]:
    """Return the seconds of the rank's transfers, and the number of steps in which each was under way."""
    ends = [end for _, end in analysis.windows(trace, rank)]
    across = analysis.across_steps(trace, rank)
    return {
        "seconds": [(end - begin) * 1e-6 for begin, end in across],
        "spans": [sum(begin < step < end for step in ends) + 1 for begin, end in across],
    }


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Train for the spec's steps."""
    os.environ["ROUNDELAY_AUTOTUNE"] = "0"
    os.environ["ROUNDELAY_TIMELINE"] = "DYNAMIC"
    ranks = measure.Ranks(spec)
    hvd.init()
    torch.manual_seed(1)
    task = cnn()
    trainee = Trainee(task, daso(spec["global_skip"], spec["batches_to_wait"]), 0.01, 0.9, hvd.rank())
    batch, strategy = trainee.batch(), trainee.strategy
    assert isinstance(strategy, hvd.strategies.DASO)
    for _ in range(_FIRST):
        trainee.step(batch)
    path, late = Path(spec["timeline"]), hvd.stats()["late_merges"]
    hvd.start_timeline(str(path))
    hvd.barrier()  # all ranks record from the same step on
    for _ in range(spec["steps"]):
        trainee.step(batch)
    late = hvd.stats()["late_merges"] - late
    strategy.average()  # nothing is under way when the timeline stops
    hvd.stop_timeline()
    hvd.shutdown()
    ranks.leave()
    size = sum(one.numel() * one.element_size() for one in task.model.parameters())
    return {"rank": ranks.rank, "bytes": size, "late": late, **_transfers(events.read(path), ranks.rank)}


if __name__ == "__main__":
    measure.worker(main)
