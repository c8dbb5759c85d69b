"""A rank is killed: who is left says which one, and the job ends soon, under either launcher."""

from __future__ import annotations

import pytest

from core_job import CoreJob, core_job
from programs import dying
from rank_program import program
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

KILLED = 128 + 9

# What the survivors' errors call the operation, which is under way or could not be started any more.
NAMED = {
    "waiting": "allreduce of 'never.submitted' was",
    "small": "allreduce of 'small' was",
    "big": "allreduce of 'big' was",
    "barrier": "barrier() was",
    "join": "join() was",
    "step": " of 'gradient.",  # an allreduce, or the agreement after it
}


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("work", ["small", *sorted(dying.WORK.keys() - {"small"})])
def test_survivors_raise_an_error_that_names_the_dead(core_job: CoreJob, work: str, victim: int) -> None:
    np = 2 if work == "big" else 3
    end = core_job.conduct(np, program(dying.dies_while_all_work, work, victim))
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert set(end.seen) == set(range(np)) - {victim}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert f"rank {victim} is gone" in seen.text
        assert NAMED[work] in seen.text
    assert f"rank {victim} " in end.err.strip().splitlines()[-1]


def test_each_handle_says_what_it_was(core_job: CoreJob) -> None:
    """The victim lives until all of them are submitted, and takes part in none of them."""
    end = core_job.conduct(2, program(dying.dies_when_all_is_submitted))
    step, *texts = end.seen[0].text.splitlines()
    cause = texts[0].partition(" (while ")[0]
    assert cause.startswith("rank 1 is gone: ")
    assert texts == [
        f"{cause} (while {what} was under way)"
        for what in (
            "allreduce of 'a'",
            "allreduce of 'g' (2 tensors)",
            "broadcast of 'b'",
            "allgather of 'allgather.noname.1'",
        )
    ]
    assert step.startswith(f"{cause} (")
    assert step.endswith("; with it 'gradient.weight'")


@pytest.mark.parametrize(
    ("work", "victim"), [("waiting", 0), ("small", 1), pytest.param("big", 1, marks=pytest.mark.nightly)]
)
def test_plain_mpirun_ends_all(core_job: CoreJob, work: str, victim: int) -> None:
    end = core_job.conduct(2, program(dying.dies_while_all_work, work, victim), launcher="mpirun")
    assert end.status != 0
    end.expect_in_time()


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("launcher", ["roundelayrun", "mpirun"])
def test_killed_before_init(core_job: CoreJob, launcher: str, victim: int) -> None:
    end = core_job.conduct(3, program(dying.dies_before_init, victim), launcher=launcher)
    assert end.status == KILLED if launcher == "roundelayrun" else end.status != 0, end.err
    end.expect_in_time()


@pytest.mark.slow
def test_killed_while_others_are_on_their_way_out(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(dying.dies_while_others_shut_down))
    assert end.status == KILLED, end.err
    end.expect_in_time()
