"""Ranks of a large job, which say what they have used."""

from __future__ import annotations

import os
from pathlib import Path

import torch

import roundelay.torch as hvd
from rank_here import Rank

TENSORS = 5
STEPS = 10


def _used() -> dict[str, int]:
    """The threads of this process, and its sockets of the internet family."""
    links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return {
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "sockets": sum(link.startswith("socket:") for link in links),
    }


def steps(me: Rank) -> None:
    """A start, ten steps, and a stop."""
    before = _used()
    hvd.init()
    ranks = hvd.size()
    first = hvd.stats()
    for step in range(STEPS):
        handles = [
            hvd.allreduce_async(torch.full((1000,), float(hvd.rank() + step + i)), op=hvd.Sum, name=f"t{i}")
            for i in range(TENSORS)
        ]
        for i, handle in enumerate(handles):
            expected = float(ranks * (step + i) + ranks * (ranks - 1) // 2)
            assert torch.equal(hvd.synchronize(handle), torch.full((1000,), expected)), (step, i)
    used, last = _used(), hvd.stats()
    report = {name: used[name] - before[name] for name in used}
    report |= {name: last[name] - first[name] for name in ("messages_sent", "orders_given", "reports_sent")}
    report["nodes"] = hvd.cross_size()
    me.tell(f"used.{me.number}", str(report))
    hvd.barrier()
    hvd.shutdown()
