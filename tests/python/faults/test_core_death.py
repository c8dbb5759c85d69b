"""A rank is killed: who is left says which one, and the job ends soon, under either launcher."""

from __future__ import annotations

import pytest

from core_job import INIT, PRELUDE, CoreJob, core_job
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

KILLED = 128 + 9

# What the survivors do when the victim dies; the victim dies in the middle of it.
WORK = {
    "waiting": """
        if rank != VICTIM:
            with watched():
                hvd.allreduce(torch.ones(3), name="never.submitted")
        time.sleep(60)
    """,
    "small": """
        with watched():
            while True:
                hvd.allreduce(torch.ones(3), name="small", op=hvd.Sum)
    """,
    "big": """
        big = torch.ones(16 << 20)
        with watched():
            while True:
                hvd.allreduce_(big, name="big", op=hvd.Min)
    """,
}


def body(work: str, victim: int) -> str:
    lines = [line[8:] for line in WORK[work].splitlines()]
    return f"VICTIM = {victim}\nif rank == VICTIM: during(0.7, die)\n" + "\n".join(lines)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("work", sorted(WORK))
def test_survivors_raise_an_error_that_names_the_dead(core_job: CoreJob, work: str, victim: int) -> None:
    np = 2 if work == "big" else 3
    end = core_job.conduct(np, body(work, victim))
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert set(end.seen) == set(range(np)) - {victim}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert f"rank {victim} is gone" in seen.text
    assert f"rank {victim} " in end.err.strip().splitlines()[-1]


@pytest.mark.parametrize(("work", "victim"), [("waiting", 0), ("small", 1), ("big", 1)])
def test_plain_mpirun_ends_all(core_job: CoreJob, work: str, victim: int) -> None:
    end = core_job.conduct(2, body(work, victim), launcher="mpirun")
    assert end.status != 0
    end.expect_in_time()


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("launcher", ["roundelayrun", "mpirun"])
def test_killed_before_init(core_job: CoreJob, launcher: str, victim: int) -> None:
    early = f"if rank == {victim}: during(0.0, die); time.sleep(60)\n"
    end = core_job.ended(core_job.begin(3, "", launcher=launcher, prelude=PRELUDE + early + INIT))
    assert end.status == KILLED if launcher == "roundelayrun" else end.status != 0, end.err
    end.expect_in_time()


def test_killed_while_others_are_on_their_way_out(core_job: CoreJob) -> None:
    end = core_job.conduct(2, "if rank == 1: during(1.0, die); time.sleep(60)\nhvd.shutdown()")
    assert end.status == KILLED, end.err
    end.expect_in_time()
