"""Ranks whose first init() fails, as a variable is bad or differs. The second one must work."""

from __future__ import annotations

import os
import time

import torch

import roundelay.torch as hvd
from rank_here import Rank


def _start_twice(me: Rank, variable: str) -> None:
    me.ready()
    try:
        hvd.init()
    except Exception as error:
        me.note(error)
    me.stamp()
    os.environ.pop(variable)
    hvd.init()
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).sum() == 3 * hvd.size()


def theta_differs(me: Rank) -> None:
    os.environ["ROUNDELAY_THETA"] = str(1000 + (me.number == 1))
    _start_twice(me, "ROUNDELAY_THETA")


def timeline_at(me: Rank, path: str) -> None:
    os.environ["ROUNDELAY_TIMELINE"] = path
    _start_twice(me, "ROUNDELAY_TIMELINE")


def rank_1_has_a_bad_theta(me: Rank) -> None:
    if me.number == 1:
        os.environ["ROUNDELAY_THETA"] = "-5"
        me.stamp()
    me.init()
    time.sleep(60)
