"""Ranks with a fake GPU that die, raise or go on in the middle of operations there."""

from __future__ import annotations

import atexit

import torch

import gpu_device
import roundelay.torch as hvd
from rank_here import Rank


def dies(me: Rank, elements: int, victim: int) -> None:
    gpu_device.use()
    me.init()
    if me.number == victim:
        me.die_watched(0.7, 3)
    big = torch.ones(elements)
    with me.watched():
        while True:
            hvd.allreduce_(big, name="big", op=hvd.Min)


def reduces_400_times(me: Rank) -> None:
    gpu_device.use()
    me.init()
    for number in range(400):
        total = hvd.allreduce(torch.full((5000,), float(number + me.number)), name="sum", op=hvd.Sum)
        assert total.unique().tolist() == [2 * number + 1], number
    me.tell(f"passed.{me.number}")


def raises_and_stays_until_rank_0_has_heard(me: Rank) -> None:
    """A second after its end roundelayrun ends rank 0, which on a busy machine may not have run by then."""
    gpu_device.use()
    me.init()
    if me.number == 1:
        atexit.register(me.wait_for, "seen.0")
    with me.watched():  # rank 0 may hear of it in either operation
        hvd.allreduce_(torch.ones(1000), name="once")
        if me.number == 1:
            me.stamp()
            raise ValueError("enough")
        hvd.allreduce_(torch.ones(1000), name="twice")
