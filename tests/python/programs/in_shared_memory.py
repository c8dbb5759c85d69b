"""Ranks that reduce in shared memory until one dies, or have too little of it."""

from __future__ import annotations

import os
import resource

import torch

import roundelay.torch as hvd
from rank_here import Rank
from roundelay import _core


def on_nodes_of(me: Rank, ranks: int) -> None:
    """So many ranks take themselves for a node."""
    os.environ["ROUNDELAY_NODE_ID"] = str(me.number // ranks)
    os.environ["LOCAL_RANK"] = str(me.number % ranks)


def with_little_memory(me: Rank) -> None:
    """On rank 0, which makes the shared memory, no file may be longer."""
    if me.number == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))


def _move_until_death(me: Rank, fabric: str, victim: int, after_s: float) -> None:
    """All operations that move data in rounds, one after the other, until the victim dies."""
    me.init()
    assert _core.transports()["fabric"] == fabric
    if me.number == victim:
        me.die_watched(after_s, hvd.size())
    tensors = [torch.ones(n) for n in (1, 5000, 70000, 1 << 20)]
    with me.watched():
        while True:
            for i, tensor in enumerate(tensors):
                hvd.allreduce_(tensor, name=f"sum.{i}", op=hvd.Average)
                hvd.broadcast_(tensor, 0, name=f"copy.{i}")
                hvd.allgather(tensor, name=f"rows.{i}")
                if i:
                    hvd.reducescatter(tensor[: 4 * hvd.size()], name=f"part.{i}")


def _reduce_and_say_over_what(me: Rank) -> None:
    me.init()
    assert hvd.allreduce(torch.ones(100000), name="x", op=hvd.Sum).sum() == 100000 * hvd.size()
    print("fabric", _core.transports()["fabric"])


def dies(me: Rank, victim: int, after_s: float) -> None:
    _move_until_death(me, "shm", victim, after_s)


def dies_on_two_nodes(me: Rank, victim: int, after_s: float, between: str) -> None:
    on_nodes_of(me, 2)
    _move_until_death(me, f"shm+{between}", victim, after_s)


def has_little(me: Rank) -> None:
    with_little_memory(me)
    _reduce_and_say_over_what(me)


def has_little_on_one_of_two_nodes(me: Rank) -> None:
    with_little_memory(me)
    on_nodes_of(me, 2)
    _reduce_and_say_over_what(me)


def has_little_and_wants_nothing_else(me: Rank) -> None:
    with_little_memory(me)
    os.environ["ROUNDELAY_FABRIC"] = "shm"
    with me.watched():
        hvd.init()


def is_alone_on_its_node(me: Rank) -> None:
    on_nodes_of(me, 1)
    _reduce_and_say_over_what(me)
