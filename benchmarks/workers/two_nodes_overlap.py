"""Steps of several buckets over the ranks of two nodes, and what the timeline says of their levels."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.exact import Sum
from roundelay import _core
from roundelay.timeline import analysis, events
from roundelay.torch._internal.measure import Span


def _step(buckets: list[torch.Tensor], data: Sum) -> None:
    for bucket in buckets:
        data.fill(bucket)
    handles = [
        hvd.allreduce_async_(bucket, op=hvd.Sum, name=f"bucket {index}")
        for index, bucket in enumerate(buckets)
    ]
    step = Span("step")  # its end is the end of a step in the timeline
    for handle in handles:
        hvd.synchronize(handle)
    step.end()
    for bucket in buckets:
        data.check(bucket, "roundelay")


def _most_at_once(trace: events.Trace, rank: int) -> int:
    """Count the operations that were under way at once."""
    tracks = (analysis.COLLECTIVE, analysis.SECOND_COLLECTIVE)
    spans = [span for track in tracks for span in trace.spans(rank, track)]
    return max(sum(other.begin <= span.begin < other.end for other in spans) for span in spans)


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Carry out the steps of the spec."""
    os.environ["ROUNDELAY_FUSION_THRESHOLD"] = "0"  # each bucket travels alone
    os.environ["ROUNDELAY_TIMELINE"] = "DYNAMIC"
    ranks = measure.Ranks(spec)
    hvd.init()
    count = spec["size"] // 4
    data = Sum(count, torch.float32, ranks.rank, ranks.size)
    buckets = [torch.empty(count) for _ in range(spec["buckets"])]
    _step(buckets, data)
    path = Path(spec["timeline"])
    hvd.start_timeline(str(path))
    for _ in range(spec["steps"]):
        _step(buckets, data)
    hvd.stop_timeline()
    fabric = _core.transports()["fabric"]
    hvd.shutdown()
    ranks.leave()
    if ranks.rank != 0:
        return {}
    trace = events.read(path)
    levels = [
        {**dataclasses.asdict(of_rank), "most": _most_at_once(trace, of_rank.rank)}
        for of_rank in analysis.levels(trace)
    ]
    return {"fabric": fabric, "levels": levels}


if __name__ == "__main__":
    measure.worker(main)
