"""Shared memory: a rank killed in the middle of it, and ranks that cannot have it and agree on another.

That nothing is left, each job checks: the memory has no name and ends with its processes.
"""

from __future__ import annotations

import random

import pytest

from core_job import CoreJob, core_job
from programs import in_shared_memory
from rank_program import program
from ranks import mpirun

pytestmark = pytest.mark.slow

__all__ = ["core_job"]

NO_MPI = pytest.mark.skipif(mpirun() is None, reason="no mpirun")
# What there is beside shared memory, by launcher.
BESIDE = pytest.mark.parametrize(
    ("launcher", "beside"),
    [("roundelayrun", "tcp"), pytest.param("roundelayrun --mpi", "mpi", marks=NO_MPI)],
)

KILLED = 128 + 9
MORE_KILLS = [pytest.param(*seeds, marks=pytest.mark.nightly) for seeds in [(2, 2), (2, 3), (4, 5)]]


@pytest.mark.parametrize(("np", "seed"), [(2, 1), (4, 4), *MORE_KILLS])
def test_killed_at_any_moment(core_job: CoreJob, np: int, seed: int) -> None:
    choice = random.Random(seed)
    victim, after = choice.randrange(np), choice.uniform(0.3, 0.6)
    end = core_job.conduct(np, program(in_shared_memory.dies, victim, after))
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert set(end.seen) == set(range(np)) - {victim}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert f"rank {victim} is gone" in seen.text


@BESIDE
def test_too_little_memory_for_one_rank_is_another_fabric_for_all(
    core_job: CoreJob, launcher: str, beside: str
) -> None:
    end = core_job.conduct(3, program(in_shared_memory.has_little), launcher=launcher)
    assert end.status == 0, end.err
    assert end.out.count(f"fabric {beside}") == 3
    warnings = [line for line in end.err.splitlines() if "does not use shared memory" in line]
    assert len(warnings) == 1, end.err
    assert "rank 0: " in warnings[0]
    assert "file too large" in warnings[0]
    assert f"fabric {beside} moves the bytes" in warnings[0]
    assert "room for" in warnings[0]


@BESIDE
def test_one_node_without_memory_is_another_fabric_for_all_nodes(
    core_job: CoreJob, launcher: str, beside: str
) -> None:
    end = core_job.conduct(4, program(in_shared_memory.has_little_on_one_of_two_nodes), launcher=launcher)
    assert end.status == 0, end.err
    assert end.out.count(f"fabric {beside}") == 4
    (warning,) = [line for line in end.err.splitlines() if "does not use shared memory" in line]
    assert "file too large" in warning


@BESIDE
def test_a_rank_of_one_node_killed_while_two_reduce(core_job: CoreJob, launcher: str, beside: str) -> None:
    work = program(in_shared_memory.dies_on_two_nodes, 3, 0.4, beside)
    end = core_job.conduct(4, work, launcher=launcher)
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert set(end.seen) == {0, 1, 2}, end.err
    for seen in end.seen.values():
        assert "rank 3" in seen.text


def test_shared_memory_or_nothing(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(in_shared_memory.has_little_and_wants_nothing_else))
    assert end.status != 0
    assert set(end.seen) == {0, 1}, end.err
    for seen in end.seen.values():
        assert "rank 0: " in seen.text
        assert "ROUNDELAY_FABRIC=shm allows nothing else" in seen.text


@BESIDE
def test_a_node_each_is_no_matter_for_a_warning(core_job: CoreJob, launcher: str, beside: str) -> None:
    end = core_job.conduct(2, program(in_shared_memory.is_alone_on_its_node), launcher=launcher)
    assert end.status == 0, end.err
    assert end.out.count(f"fabric {beside}") == 2
    assert "shared memory" not in end.err
