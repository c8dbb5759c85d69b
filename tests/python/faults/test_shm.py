"""Shared memory: a rank killed in the middle of it, and ranks that cannot have it and agree on another.

That nothing is left, each job checks: the memory has no name and ends with its processes.
"""

from __future__ import annotations

import random

import pytest

from core_job import INIT, PRELUDE, CoreJob, core_job
from ranks import mpirun

pytestmark = pytest.mark.slow

__all__ = ["core_job"]

NO_MPI = pytest.mark.skipif(mpirun() is None, reason="no mpirun")
# What there is beside shared memory, by launcher.
BESIDE = pytest.mark.parametrize(
    ("launcher", "beside"),
    [("roundelayrun", "c10d"), pytest.param("roundelayrun --mpi", "mpi", marks=NO_MPI)],
)

KILLED = 128 + 9
MORE_KILLS = [pytest.param(*seeds, marks=pytest.mark.nightly) for seeds in [(2, 2), (2, 3), (4, 5)]]

# All operations that move data in rounds, one after the other, until the victim dies.
STREAM = """
assert hvd.core.transports()["fabric"] == "shm"
VICTIM = {victim}
if rank == VICTIM: die_watched({after})
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
if rank == 0: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
"""
# So many ranks take themselves for a node.
NODES = """
os.environ["ROUNDELAY_NODE_ID"] = str(rank // {each})
os.environ["LOCAL_RANK"] = str(rank % {each})
"""


@pytest.mark.parametrize(("np", "seed"), [(2, 1), (4, 4), *MORE_KILLS])
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


@BESIDE
def test_too_little_memory_for_one_rank_is_another_fabric_for_all(
    core_job: CoreJob, launcher: str, beside: str
) -> None:
    prelude = PRELUDE + LITTLE + INIT
    end = core_job.ended(core_job.begin(3, CORE + REDUCED, launcher=launcher, prelude=prelude))
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
    prelude = PRELUDE + LITTLE + NODES.format(each=2) + INIT
    end = core_job.ended(core_job.begin(4, CORE + REDUCED, launcher=launcher, prelude=prelude))
    assert end.status == 0, end.err
    assert end.out.count(f"fabric {beside}") == 4
    (warning,) = [line for line in end.err.splitlines() if "does not use shared memory" in line]
    assert "file too large" in warning


@BESIDE
def test_a_rank_of_one_node_killed_while_two_reduce(core_job: CoreJob, launcher: str, beside: str) -> None:
    body = CORE + STREAM.replace('"shm"', f'"shm+{beside}"').format(victim=3, after=0.4)
    prelude = PRELUDE + NODES.format(each=2) + INIT
    end = core_job.ended(core_job.begin(4, body, launcher=launcher, prelude=prelude))
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert set(end.seen) == {0, 1, 2}, end.err
    for seen in end.seen.values():
        assert "rank 3" in seen.text


def test_shared_memory_or_nothing(core_job: CoreJob) -> None:
    settings = LITTLE + 'os.environ["ROUNDELAY_FABRIC"] = "shm"\n'
    body = "with watched(): hvd.init()\n"
    end = core_job.ended(core_job.begin(2, body, prelude=PRELUDE + settings))
    assert end.status != 0
    assert set(end.seen) == {0, 1}, end.err
    for seen in end.seen.values():
        assert "rank 0: " in seen.text
        assert "ROUNDELAY_FABRIC=shm allows nothing else" in seen.text


@BESIDE
def test_a_node_each_is_no_matter_for_a_warning(core_job: CoreJob, launcher: str, beside: str) -> None:
    prelude = PRELUDE + NODES.format(each=1) + INIT
    end = core_job.ended(core_job.begin(2, CORE + REDUCED, launcher=launcher, prelude=prelude))
    assert end.status == 0, end.err
    assert end.out.count(f"fabric {beside}") == 2
    assert "shared memory" not in end.err
