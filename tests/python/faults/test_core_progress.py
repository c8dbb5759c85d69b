"""A rank stops inside a collective: named after the deadline; if it goes on before, all is well."""

from __future__ import annotations

import time

import pytest

from core_job import LIMIT_S, CoreJob, core_job, go_on
from in_time import expect_within, wait_until
from launch_job import state_of
from programs import stopping
from rank_program import program
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

TIMEOUT_S = 3.0
BYTES = 16 << 20
ALLOWED_S = TIMEOUT_S + BYTES / 10e6  # a slow link's rate is allowed beyond the timeout
VERDICT_S = 3.5  # kVerdictPatience (2.5 s) until who is to blame is known, and a second to be scheduled


@pytest.mark.parametrize(("np", "stopped"), [(2, 1), (2, 0), (3, 1)])
def test_a_stopped_rank_is_named(core_job: CoreJob, np: int, stopped: int) -> None:
    process = core_job.begin(np, program(stopping.stops_within, stopped, TIMEOUT_S, BYTES))
    others = set(range(np)) - {stopped}
    for rank in others:
        core_job.wait_for(f"seen.{rank}")
    end = core_job.ended(process)
    assert end.status != 0
    began, since = (float((core_job.folder / name).read_text()) for name in ("began", "failed_at"))
    for rank in others:
        seen = end.seen[rank]
        assert seen.type == "HorovodInternalError"
        assert f"rank {stopped} entered allreduce of 'big." in seen.text
        assert "then stopped" in seen.text
        assert seen.at - began > TIMEOUT_S, seen  # a rank's clock runs from when it enters the operation
        expect_within(ALLOWED_S + VERDICT_S, seen.at - since, seen)


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [0, 1])
def test_continued_in_time_nothing_happened(core_job: CoreJob, stopped: int) -> None:
    process = core_job.begin(2, program(stopping.stops_within, stopped, TIMEOUT_S, BYTES))
    pids = core_job.await_ranks(2)
    wait_until(lambda: state_of(pids[stopped]) == "T", LIMIT_S, "the rank did not stop")
    time.sleep(1.5)
    go_on(pids[stopped])
    end = core_job.ended(process)
    assert end.status == 0, end.err
    assert end.after_s > 1.5


@pytest.mark.slow
def test_continued_too_late_it_hears_what_was_decided(core_job: CoreJob) -> None:
    process = core_job.begin(2, program(stopping.stops_within_and_lives, 1, TIMEOUT_S, BYTES))
    pids = core_job.await_ranks(2)
    core_job.wait_for("seen.0")
    go_on(pids[1])
    since = time.time()
    core_job.wait_for("seen.1")
    (core_job.folder / "enough").touch()
    end = core_job.ended(process)
    assert end.seen[1].cause == end.seen[0].cause
    expect_within(TIMEOUT_S, end.seen[1].at - since)  # it did not wait for a clock of its own


@pytest.mark.slow
def test_a_rank_0_that_stops_outside_a_collective_is_named(core_job: CoreJob) -> None:
    """It keeps the clock for everybody else's absence; its own is the others' to notice."""
    process = core_job.begin(2, program(stopping.rank_0_stops_before))
    core_job.wait_for("seen.1")
    end = core_job.ended(process)
    assert "rank 0, which coordinates, has answered nothing for" in end.seen[1].text
