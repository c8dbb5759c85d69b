"""Ranks that call init(comm=...): by number, by communicator, alone."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from rank_here import Rank


def _total(value: int) -> float:
    return hvd.allreduce(torch.tensor([float(value)]), op=hvd.Sum).item()


def _refused(comm: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        hvd.init(comm=comm)


def _say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # in one write: ranks share the pipe


def by_number(me: Rank, size: int) -> None:
    """Two jobs at the same time, each in an order of its own; then one of all."""
    rank = me.number
    _refused([0, size], f"there is no rank {size}, only {size} ranks were started")
    _refused([r for r in range(size) if r != rank], f"this is rank {rank}, which is not in the list")
    mine = [2, 0] if rank in (0, 2) else [1]
    for _ in range(2):
        hvd.init(comm=mine)
        assert (hvd.size(), hvd.rank()) == (len(mine), mine.index(rank))
        assert (hvd.local_rank(), hvd.cross_size()) == (hvd.rank(), 1)
        assert _total(rank + 1) == sum(mine) + len(mine)
        hvd.shutdown()
    hvd.init()
    assert (hvd.size(), hvd.rank()) == (size, rank)
    assert _total(1) == size
    _say(f"done {rank}")


def by_communicator(_: Rank) -> None:
    from mpi4py import MPI  # starts MPI, which a test must not do

    world = MPI.COMM_WORLD
    rank, size = world.rank, world.size
    half: Any = world.Split(rank % 2, -rank)
    hvd.init(comm=half)
    assert (hvd.size(), hvd.rank()) == (half.size, half.rank)
    assert _total(rank) == half.allreduce(rank)
    hvd.shutdown()
    other = half.Create_intercomm(0, world, 2 if rank % 2 else 1)  # the first of the other half
    _refused(other, "of one group")
    _refused(MPI.COMM_NULL, "that this rank is in")
    other.Free()
    half.Free()
    for comm in (world, None):
        hvd.init(comm=comm)
        assert (hvd.size(), hvd.rank()) == (size, rank)
        assert _total(rank) == sum(range(size))
        hvd.shutdown()
    hvd.init(comm=[rank])
    assert hvd.size() == 1
    hvd.shutdown()
    assert not MPI.Is_finalized()
    assert world.allreduce(1) == size  # MPI is still the user's
    MPI.Finalize()
    _say(f"done {rank}")


def alone(_: Rank) -> None:
    _refused([0, 1], "there is only rank 0")
    _refused([0, 0], "more than once")
    _refused([-1], "which count from 0")
    _refused("01", "a list of ranks, a communicator of mpi4py or None")
    hvd.init(comm=[0])
    assert hvd.size() == 1
    _say("done")
