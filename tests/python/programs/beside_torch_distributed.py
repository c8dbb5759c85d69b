"""Uses torch.distributed `before` or `after` Roundelay: `beside_torch_distributed.py WHEN`."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

import roundelay.torch as hvd


def distributed() -> torch.Tensor:
    """A sum by torch.distributed."""
    dist.init_process_group("gloo")
    total = torch.ones(3)
    dist.all_reduce(total)
    return total


def roundelay() -> torch.Tensor:
    """A sum by Roundelay."""
    hvd.init()
    return hvd.allreduce(torch.ones(3), op=hvd.Sum)


ways = [distributed, roundelay]
sums = [way().tolist() for way in (ways if sys.argv[1] == "before" else ways[::-1])]
assert sums == [[dist.get_world_size()] * 3] * 2, sums
assert (hvd.rank(), hvd.size()) == (dist.get_rank(), dist.get_world_size())
hvd.barrier()
print("both work")
dist.destroy_process_group()  # a thread of Gloo's that frees a sum while Python ends aborts the process
