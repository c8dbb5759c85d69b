"""Runs operations whose algorithms a tuning file chooses, or prints why init() refuses the file."""

from __future__ import annotations

import torch

import roundelay.torch as hvd

try:
    hvd.init()
except Exception as error:
    print("refused:", type(error).__name__, error)
    raise SystemExit from None
for size in (256, 65536):
    assert torch.equal(hvd.allreduce(torch.ones(size), op=hvd.Sum, name=f"{size}"), torch.full((size,), 2.0))
hvd.broadcast(torch.ones(100), 0, name="b")
hvd.allgather(torch.ones(100), name="g")
