"""Ranks that speak MPI and end: well, killed, by MPI_Abort, without MPI_Finalize."""

from __future__ import annotations

import os
import time
from typing import Any

from rank_here import Rank


def _world(me: Rank) -> Any:
    from mpi4py import MPI  # starts MPI, which a test must not do

    world = MPI.COMM_WORLD
    assert world.rank == me.number
    assert world.allreduce(me.number + 1) == sum(range(1, world.size + 1))
    return world


def say_their_sum(me: Rank) -> None:
    world = _world(me)
    print(world.size, world.allreduce(me.number + 1))


def outlive_a_killed_rank(me: Rank) -> None:
    """Rank 1."""
    _world(me)
    me.ready()
    if me.number == 1:
        me.die()
    me.outlive(1, "alive")


def abort_with_4(me: Rank) -> None:
    world = _world(me)
    if me.number == 1:
        me.stamp()
        world.Abort(4)
    time.sleep(60)


def exit_without_finalize(me: Rank) -> None:
    _world(me)
    if me.number == 1:
        me.stamp()
        os._exit(3)
    time.sleep(60)
