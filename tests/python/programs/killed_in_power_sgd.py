"""A rank is killed within a PowerSGD step, where a parameter that goes densely is written into the bucket."""

from __future__ import annotations

import mmap

import torch

import roundelay.torch as hvd
import traps
from rank_here import Rank
from techniques_of import techniques_of


def dies_in_a_step(me: Rank) -> None:
    """Backward brings the gradient of `whole` first: it lies in the first rank's shard of the bucket."""
    me.init()
    whole = torch.nn.Parameter(torch.zeros(1 << 14))
    matrix = torch.nn.Parameter(torch.zeros(300, 400))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([matrix, whole], lr=1.0),
        [("matrix", matrix), ("whole", whole)],
        op=hvd.Sum,
        strategy="power_sgd:rank=1,dense_parameters=whole",
    )

    def step() -> None:
        optimizer.zero_grad()
        first = (matrix * (me.number + 1.0)).sum()
        (first + (whole * 2.0).sum()).backward()
        optimizer.step()

    while not techniques_of(optimizer).table.keeps_something():
        step()
    step()
    hvd.barrier()
    if me.number == 1:
        assert whole.grad is not None
        _die_on_writing(me, traps.page_from(whole.grad.data_ptr()), matrix)
    with me.watched():
        step()


def _die_on_writing(me: Rank, page: int, last: torch.Tensor) -> None:
    """From when the gradient of `last` comes."""

    def kill() -> None:
        me.tell("wrote")
        me.die()

    traps.on_write(kill)
    last.register_hook(lambda _: traps.protect(page, mmap.PAGESIZE, mmap.PROT_READ))
