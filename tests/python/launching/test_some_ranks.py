"""init(comm=...): jobs of some of the ranks, by number or by communicator; an MPI that the user started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import starts
from ranks import mpirun

PRELUDE = """
import faulthandler, os, sys
faulthandler.dump_traceback_later(80, exit=True)
import torch
import roundelay.torch as hvd

def total(value):
    return hvd.allreduce(torch.tensor([float(value)]), op=hvd.Sum).item()

def refused(comm, words):
    try:
        hvd.init(comm=comm)
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"{comm} was taken")

def say(text):  # in one write: ranks share the pipe
    os.write(1, f"{text}\\n".encode())
"""
# Two jobs at the same time, each in an order of its own; then one of all.
BY_NUMBER = """
refused([0, SIZE], f"there is no rank {SIZE}, only {SIZE} ranks were started")
refused([r for r in range(SIZE) if r != ME], f"this is rank {ME}, which is not in the list")
mine = [2, 0] if ME in (0, 2) else [1]
for _ in range(2):
    hvd.init(comm=mine)
    assert (hvd.size(), hvd.rank()) == (len(mine), mine.index(ME))
    assert (hvd.local_rank(), hvd.cross_size()) == (hvd.rank(), 1)
    assert total(ME + 1) == sum(mine) + len(mine)
    hvd.shutdown()
hvd.init()
assert (hvd.size(), hvd.rank()) == (SIZE, ME)
assert total(1) == SIZE
say(f"done {ME}")
"""
BY_COMMUNICATOR = """
from mpi4py import MPI
world = MPI.COMM_WORLD
ME, SIZE = world.rank, world.size
half = world.Split(ME % 2, -ME)
hvd.init(comm=half)
assert (hvd.size(), hvd.rank()) == (half.size, half.rank)
assert total(ME) == half.allreduce(ME)
hvd.shutdown()
other = half.Create_intercomm(0, world, 2 if ME % 2 else 1)  # the first of the other half
refused(other, "of one group")
refused(MPI.COMM_NULL, "that this rank is in")
other.Free()
half.Free()
for comm in (world, None):
    hvd.init(comm=comm)
    assert (hvd.size(), hvd.rank()) == (SIZE, ME)
    assert total(ME) == sum(range(SIZE))
    hvd.shutdown()
hvd.init(comm=[ME])
assert hvd.size() == 1
hvd.shutdown()
assert not MPI.Is_finalized()
assert world.allreduce(1) == SIZE  # MPI is still the user's
MPI.Finalize()
say(f"done {ME}")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


def expect_all_done(status: int, output: str, ranks: int) -> None:
    assert status == 0, output
    assert output.count("done ") == ranks, output


@pytest.mark.slow
@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_a_communicator_of_an_mpi_that_the_user_started(script: Path) -> None:
    pytest.importorskip("mpi4py")
    script.write_text(PRELUDE + BY_COMMUNICATOR)
    expect_all_done(*starts.run([*starts.MPIRUN, "-np", "3", sys.executable, str(script)]), 3)


@pytest.mark.slow
@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_ranks_of_mpi(script: Path) -> None:
    place = "ME, SIZE = int(os.environ['OMPI_COMM_WORLD_RANK']), 3\n"
    script.write_text(PRELUDE + place + BY_NUMBER)
    expect_all_done(*starts.run([*starts.MPIRUN, "-np", "3", sys.executable, str(script)]), 3)


@pytest.mark.slow
def test_ranks_of_torchrun(script: Path) -> None:
    place = "ME, SIZE = int(os.environ['RANK']), 3\n"
    script.write_text(PRELUDE + place + BY_NUMBER)
    torchrun = [*starts.TORCHRUN, "--standalone", "--nproc-per-node", "3"]
    expect_all_done(*starts.run([*torchrun, str(script)]), 3)


def test_one_process(script: Path) -> None:
    body = """
refused([0, 1], "there is only rank 0")
refused([0, 0], "more than once")
refused([-1], "which count from 0")
refused("01", "a list of ranks, a communicator of mpi4py or None")
hvd.init(comm=[0])
assert hvd.size() == 1
say("done")
"""
    script.write_text(PRELUDE + body)
    status, output = starts.run([sys.executable, str(script)])
    assert status == 0, output
