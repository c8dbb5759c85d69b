"""A rank dies, or stops for a while, in the middle of operations on GPUs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from core_job import PRELUDE, CoreJob, core_job, go_on
from in_time import three_tries

pytestmark = pytest.mark.slow

__all__ = ["core_job"]

KILLED = 128 + 9
ON_GPU = f"""
sys.path.insert(0, {str(Path(__file__).parents[1] / "support")!r})
import gpu_device
gpu_device.use()
hvd.init()
ready()
"""
WORK = """
big = torch.ones({elements})
with watched():
    while True:
        hvd.allreduce_(big, name="big", op=hvd.Min)
"""


@three_tries
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("elements", [10, pytest.param(1 << 20, marks=pytest.mark.nightly)])
def test_survivors_name_the_dead(core_job: CoreJob, elements: int, victim: int) -> None:
    work = f"if rank == {victim}: die_watched(0.7)\n" + WORK.format(elements=elements)
    end = core_job.ended(core_job.begin(3, work, prelude=PRELUDE + ON_GPU))
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert set(end.seen) == {0, 1, 2} - {victim}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert f"rank {victim} is gone" in seen.text


def test_a_stopped_rank_goes_on(core_job: CoreJob) -> None:
    body = """
for number in range(400):
    total = hvd.allreduce(torch.full((5000,), float(number + rank)), name="sum", op=hvd.Sum)
    assert total.unique().tolist() == [2 * number + 1], number
Path(sys.argv[1], f"passed.{rank}").touch()
"""
    job = core_job.begin(2, body, prelude=PRELUDE + ON_GPU)
    pids = core_job.await_ranks(2)
    os.kill(pids[1], signal.SIGSTOP)
    time.sleep(1.0)
    go_on(pids[1])
    end = core_job.ended(job)
    assert end.status == 0, end.err
    assert {path.name for path in core_job.folder.glob("passed.*")} == {"passed.0", "passed.1"}


@three_tries
def test_an_exception_on_one_rank_ends_the_others(core_job: CoreJob) -> None:
    # Rank 1 stays until rank 0 has heard: a second after its end roundelayrun ends rank 0, which on a busy
    # machine may not have run by then.
    body = """
import atexit

def stay():
    while not Path(sys.argv[1], "seen.0").exists():
        time.sleep(0.01)

if rank == 1:
    atexit.register(stay)
with watched():  # rank 0 may hear of it in either operation
    hvd.allreduce_(torch.ones(1000), name="once")
    if rank == 1:
        stamp()
        raise ValueError("enough")
    hvd.allreduce_(torch.ones(1000), name="twice")
"""
    end = core_job.ended(core_job.begin(2, body, prelude=PRELUDE + ON_GPU))
    assert end.status != 0
    end.expect_in_time()
    assert set(end.seen) == {0, 1}, end.err
    assert "enough" in end.seen[0].text
