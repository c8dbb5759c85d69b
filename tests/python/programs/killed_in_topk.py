"""A rank is killed within a TopK step, where topk writes what it keeps back: it may not write there."""

from __future__ import annotations

import mmap

import torch

import roundelay.torch as hvd
import traps
from rank_here import Rank
from techniques_of import state_of_one_bucket, techniques_of

ELEMENTS = 1 << 16


def dies_in_a_step(me: Rank) -> None:
    me.init()
    weight = torch.nn.Parameter(torch.zeros(ELEMENTS))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0, momentum=0.5),
        [("weight", weight)],
        op=hvd.Sum,
        strategy="topk:density=0.1,select=radix,dense_below=0",
    )

    def step() -> None:
        optimizer.zero_grad()
        (weight * (me.number + 1)).sum().backward()
        optimizer.step()

    techniques = techniques_of(optimizer)
    while not techniques.stateful:
        step()
    step()
    hvd.barrier()
    if me.number == 1:
        _die_on_writing(me, state_of_one_bucket(optimizer))
    with me.watched():
        step()


def _die_on_writing(me: Rank, own: torch.Tensor) -> None:
    # One node: the residual and the momentum of a third of the elements.
    assert own.numel() == 2 * 4 * -(-ELEMENTS // hvd.size())
    kept = own.view(torch.float32)
    # The first tenth of the shard was sent in that step, and its momentum with it.
    assert kept[: own.numel() // 8].count_nonzero() > 0.8 * own.numel() // 8

    def kill() -> None:
        me.tell("summed")
        me.die()

    traps.on_write(kill)
    page = traps.page_from(own.data_ptr())
    size = (own.data_ptr() + own.numel() // 2 - page) // mmap.PAGESIZE * mmap.PAGESIZE
    traps.protect(page, size, mmap.PROT_READ)
