"""Adds ones on all ranks, and checks that no MPI is loaded."""

from __future__ import annotations

from pathlib import Path

import torch

import roundelay.torch as hvd

hvd.init()
total = hvd.allreduce(torch.ones(1000), op=hvd.Sum)
assert "libmpi" not in Path("/proc/self/maps").read_text()
print("sum", total.unique().tolist(), "of", hvd.size(), flush=True)
