"""Two ranks that strangers attack. Rank 1 comes when it may; both meet, wait for another word, and reduce."""

from __future__ import annotations

import faulthandler
import os

import torch

import roundelay.torch as hvd
from rank_here import Rank

LIMIT_S = 140.0  # less than the test's


def comes_and_reduces_when_allowed(me: Rank) -> None:
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    me.tell(f"here.{me.number}")
    if me.number == 1:
        me.wait_for("come")
    hvd.init()
    me.tell(f"met.{me.number}")
    me.wait_for("reduce")
    for step in range(3):
        total = hvd.allreduce(torch.full((1000,), me.number + 1.0 + step), op=hvd.Sum)
        assert total.tolist() == [3.0 + 2 * step] * 1000
    assert hvd.allgather_object({"rank": me.number}) == [{"rank": 0}, {"rank": 1}]
    os.write(1, f"rank {me.number} is right; strangers: {hvd.stats()['strangers']}\n".encode())
    hvd.shutdown()
