"""Process groups of torch.distributed between the ranks of a check."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

import roundelay.torch as hvd

PATIENCE = timedelta(seconds=60)
# A thread of Gloo's may hold the last reference to its group for a moment, after a callback on a future. Who
# destroys a group on that thread aborts the process (c10d::ProcessGroupGloo's destructor joins it).
_groups_of_gloo: list[dist.ProcessGroup | None] = []


@contextlib.contextmanager
def world(backend: str = "roundelay", timeout: timedelta = PATIENCE) -> Iterator[None]:
    """Makes the default group of all ranks, which meet in a file, and destroys it."""
    device = os.environ.get("RANKS_DEVICE")
    if device:  # PyTorch knows which backend moves CUDA's tensors, and not which moves those of a fake device
        backend = f"cpu:{backend},{device}:{backend}"
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None, 0)
    store = Path(folder) / "store"
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=hvd.rank(), world_size=hvd.size(), timeout=timeout
    )
    if backend == "gloo":
        _groups_of_gloo.append(dist.group.WORLD)
    try:
        yield
    finally:
        dist.destroy_process_group()
        hvd.barrier()
        if hvd.rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
