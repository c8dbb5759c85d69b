"""init(comm=...): jobs of some of the ranks, by number or by communicator; an MPI that the user started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import starts
from programs import some_ranks
from rank_program import program
from ranks import mpirun


def expect_all_done(status: int, output: str, ranks: int) -> None:
    assert status == 0, output
    assert output.count("done ") == ranks, output


@pytest.mark.slow
@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_a_communicator_of_an_mpi_that_the_user_started(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    words = program(some_ranks.by_communicator).words(tmp_path)
    expect_all_done(*starts.run([*starts.MPIRUN, "-np", "3", sys.executable, *words]), 3)


@pytest.mark.slow
@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_ranks_of_mpi(tmp_path: Path) -> None:
    words = program(some_ranks.by_number, 3).words(tmp_path)
    expect_all_done(*starts.run([*starts.MPIRUN, "-np", "3", sys.executable, *words]), 3)


@pytest.mark.slow
def test_ranks_of_torchrun(tmp_path: Path) -> None:
    torchrun = [*starts.TORCHRUN, "--standalone", "--nproc-per-node", "3"]
    words = program(some_ranks.by_number, 3).words(tmp_path)
    expect_all_done(*starts.run([*torchrun, *words]), 3)


def test_one_process(tmp_path: Path) -> None:
    status, output = starts.run([sys.executable, *program(some_ranks.alone).words(tmp_path)])
    assert status == 0, output
