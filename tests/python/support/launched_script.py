"""One script for every launcher: trains on whole numbers, so weights have the same bits on any ranks.

python launched_script.py FOLDER     writes FOLDER/N.json on rank N: the weights, and where the rank is
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import torch

import roundelay.torch as hvd
from roundelay import _core

BATCH = 12  # of all ranks together: divides by 1, 2, 3, 4 and 6
STEPS = 3


def train(rank: int, size: int, together: bool = True) -> list[str]:
    """Weights of a linear model after STEPS steps; sums and products of small dyadic numbers are exact."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(-2, 3, (BATCH, 5), generator=generator).double()
    targets = torch.randint(-4, 5, (BATCH, 3), generator=generator).double()
    share = slice(rank, None, size)
    model = torch.nn.Linear(5, 3, bias=False, dtype=torch.float64)
    torch.nn.init.constant_(model.weight, float(rank))  # rank 0's are the ones that count
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0625)
    if together:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Sum)
    for _ in range(STEPS):
        optimizer.zero_grad()
        ((model(inputs[share]) - targets[share]) ** 2).sum().mul(0.125).backward()
        optimizer.step()
    return [float(value).hex() for value in model.weight.detach().flatten()]


def main(folder: str) -> dict[str, object]:
    """Trains as the rank that this process is, and tells how it went."""
    torch.set_num_threads(1)
    hvd.init()
    said: dict[str, object] = {
        "weights": train(hvd.rank(), hvd.size()),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        **_core.transports(),
    }
    for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
        said[name] = getattr(hvd, name)()
    if folder:
        Path(folder, f"{hvd.rank()}.json").write_text(json.dumps(said))
    hvd.shutdown()
    return said


if __name__ == "__main__":
    main(sys.argv[1])
