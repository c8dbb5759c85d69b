"""Shared memory: a rank killed in the middle of it, and ranks that cannot have it and agree on MPI.

That nothing is left, each job checks: the memory has no name and ends with its processes.
"""

from __future__ import annotations

import random

import pytest

from core_job import INIT, PRELUDE, CoreJob, core_job
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

KILLED = 128 + 9

# All operations that move data in rounds, one after the other, until the victim dies.
STREAM = """
assert hvd.core.transports()["fabric"] == "shm"
VICTIM = {victim}
if rank == VICTIM: during({after}, die)
tensors = [torch.ones(n) for n in (1, 5000, 70000, 1 << 20)]
with watched():
    while True:
        for i, tensor in enumerate(tensors):
            hvd.allreduce_(tensor, name=f"sum.{{i}}", op=hvd.Average)
            hvd.broadcast_(tensor, 0, name=f"copy.{{i}}")
            hvd.allgather(tensor, name=f"rows.{{i}}")
            if i: hvd.reducescatter(tensor[: 4 * hvd.size()], name=f"part.{{i}}")
"""
CORE = "from roundelay import _core\nhvd.core = _core\n"

# What each rank prints, having reduced.
REDUCED = """
assert hvd.allreduce(torch.ones(100000), name="x", op=hvd.Sum).sum() == 100000 * hvd.size()
print("fabric", hvd.core.transports()["fabric"])
"""
# On rank 0, which makes the shared memory, no file may be so long.
LITTLE = """
import resource
own = int(os.environ["OMPI_COMM_WORLD_RANK"])
if own == 0: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
"""


@pytest.mark.parametrize(("np", "seed"), [(2, 1), (2, 2), (2, 3), (4, 4), (4, 5)])
def test_killed_at_any_moment(core_job: CoreJob, np: int, seed: int) -> None:
    choice = random.Random(seed)
    victim, after = choice.randrange(np), choice.uniform(0.3, 0.6)
    end = core_job.conduct(np, CORE + STREAM.format(victim=victim, after=after))
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert set(end.seen) == set(range(np)) - {victim}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert f"rank {victim} is gone" in seen.text


def test_too_little_memory_for_one_rank_is_mpi_for_all(core_job: CoreJob) -> None:
    settings = LITTLE
    end = core_job.ended(core_job.begin(3, CORE + REDUCED, prelude=PRELUDE + settings + INIT))
    assert end.status == 0, end.err
    assert end.out.count("fabric mpi") == 3
    warnings = [line for line in end.err.splitlines() if "does not use shared memory" in line]
    assert len(warnings) == 1, end.err
    assert "rank 0: " in warnings[0]
    assert "file too large" in warnings[0]
    assert "room for" in warnings[0]


def test_one_node_without_memory_is_mpi_for_all_nodes(core_job: CoreJob) -> None:
    settings = LITTLE + 'os.environ["ROUNDELAY_NODE_ID"] = str(own // 2)\n'
    end = core_job.ended(core_job.begin(4, CORE + REDUCED, prelude=PRELUDE + settings + INIT))
    assert end.status == 0, end.err
    assert end.out.count("fabric mpi") == 4
    (warning,) = [line for line in end.err.splitlines() if "does not use shared memory" in line]
    assert "file too large" in warning


def test_a_rank_of_one_node_killed_while_two_reduce(core_job: CoreJob) -> None:
    settings = 'os.environ["ROUNDELAY_NODE_ID"] = str(int(os.environ["OMPI_COMM_WORLD_RANK"]) // 2)\n'
    body = CORE + STREAM.replace('"shm"', '"shm+mpi"').format(victim=3, after=0.4)
    end = core_job.ended(core_job.begin(4, body, prelude=PRELUDE + settings + INIT))
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert set(end.seen) == {0, 1, 2}, end.err
    for seen in end.seen.values():
        assert "rank 3 is gone" in seen.text


def test_shared_memory_or_nothing(core_job: CoreJob) -> None:
    settings = LITTLE + 'os.environ["ROUNDELAY_FABRIC"] = "shm"\n'
    body = "with watched(): hvd.init()\n"
    end = core_job.ended(core_job.begin(2, body, prelude=PRELUDE + settings + "rank = own\n"))
    assert end.status != 0
    assert set(end.seen) == {0, 1}, end.err
    for seen in end.seen.values():
        assert "rank 0: " in seen.text
        assert "ROUNDELAY_FABRIC=shm allows nothing else" in seen.text


def test_a_node_each_is_no_matter_for_a_warning(core_job: CoreJob) -> None:
    settings = 'os.environ["ROUNDELAY_NODE_ID"] = os.environ["OMPI_COMM_WORLD_RANK"]\n'
    end = core_job.ended(core_job.begin(2, CORE + REDUCED, prelude=PRELUDE + settings + INIT))
    assert end.status == 0, end.err
    assert end.out.count("fabric mpi") == 2
    assert "shared memory" not in end.err
