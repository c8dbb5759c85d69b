"""Programs that speak MPI under the launcher: the agent between mpirun and them must not show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from in_time import expect_within
from launch_job import PROMISED_S, Job
from programs import ending, mpi_ranks
from rank_program import program
from ranks import mpirun
from roundelay.run.modes.mpi import survives_faults

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path, way=("--mpi",))
    yield job
    job.end()


def test_ranks_find_each_other(job: Job) -> None:
    status, out, err = job.run(3, program(mpi_ranks.say_their_sum))
    assert (status, err) == (0, "")
    assert sorted(out.splitlines()) == [f"[rank {rank}] 3 6" for rank in range(3)]


@pytest.mark.slow
def test_survivors_of_a_killed_rank_live(job: Job) -> None:
    status, out, err = job.run(3, program(mpi_ranks.outlive_a_killed_rank))
    expect_within(PROMISED_S, job.seconds_since_failure())
    assert status == 137
    assert sorted(out.splitlines()) == ["[rank 0] alive", "[rank 2] alive"]
    assert re.search(
        r"rank 1 \(pid \d+ on \S+\) failed first: killed by SIGKILL \(signal 9\): .*dmesg",
        err.splitlines()[-1],
    )


def test_an_mpi_that_only_uses_tcp_is_to_outlive_a_rank(tmp_path: Path) -> None:
    launcher = mpirun()
    if launcher is None or not survives_faults(launcher):
        pytest.skip("this MPI cannot outlive a rank")
    status, out, err = Job(tmp_path, way=("--mpi", "--tcp")).run(
        1, program(ending.says_that_it_may_lose_peers)
    )
    assert (status, out, err) == (0, "[rank 0] 1\n", "")


def test_mpi_abort_ends_the_job_with_its_code(job: Job) -> None:
    status, _, _ = job.run(2, program(mpi_ranks.abort_with_4))
    expect_within(PROMISED_S, job.seconds_since_failure())
    assert status == 4


@pytest.mark.slow
def test_exit_without_finalize(job: Job) -> None:
    status, _, err = job.run(2, program(mpi_ranks.exit_without_finalize))
    expect_within(PROMISED_S, job.seconds_since_failure())
    assert status == 3
    assert re.search(r"rank 1 .* failed first: exit code 3$", err.strip())
