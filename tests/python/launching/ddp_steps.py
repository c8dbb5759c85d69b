"""Steps of DDP over backend roundelay, and of DistributedOptimizer, on two nodes: the bytes a node sends.

python ddp_steps.py FOLDER     writes FOLDER/N.json on rank N: by who trains, the bytes of a step
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import roundelay.torch as hvd

SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")
WARMUPS, STEPS = 4, 3


def model() -> torch.nn.Module:
    """Return a model of 30 MB, with gradients of many sizes."""
    widths = [1000, 3000, 1100, 1025, 20]
    layers = [torch.nn.Linear(*pair) for pair in itertools.pairwise(widths)]
    return torch.nn.Sequential(*layers)


def bytes_of(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Return the bytes that this node sends in a step."""
    data = torch.randn(2, 1000)
    before = 0
    for step in range(WARMUPS + STEPS):
        if step == WARMUPS:
            hvd.barrier()
            before = int(SENT.read_text())
        optimizer.zero_grad()
        module(data).sum().backward()
        optimizer.step()
    hvd.barrier()
    return (int(SENT.read_text()) - before) / STEPS


def over_hvd() -> float:
    """Train with DistributedOptimizer."""
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    hvd.DistributedOptimizer(optimizer, named_parameters=module.named_parameters())
    return bytes_of(module, optimizer)


def over_ddp() -> float:
    """Train with DDP."""
    module = DistributedDataParallel(model())
    return bytes_of(module, torch.optim.SGD(module.parameters(), lr=0.01))


def main() -> None:
    """Train with each in turn."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    hvd.init()
    folder = Path(sys.argv[1])
    dist.init_process_group(
        "roundelay", init_method=f"file://{folder}/store", rank=hvd.rank(), world_size=hvd.size()
    )
    who: dict[str, Callable[[], float]] = {"hvd": over_hvd, "ddp": over_ddp}
    gradients = 4 * sum(one.numel() for one in model().parameters())
    found = {"gradients": gradients, **{name: run() for name, run in who.items()}}
    dist.destroy_process_group()
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(found))
    hvd.shutdown()


if __name__ == "__main__":
    main()
