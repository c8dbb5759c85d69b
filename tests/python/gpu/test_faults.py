"""A rank dies, or stops for a while, in the middle of operations on GPUs."""

from __future__ import annotations

import os
import signal
import time

import pytest

from core_job import CoreJob, core_job, go_on
from in_time import three_tries
from programs import on_gpu
from rank_program import program

pytestmark = pytest.mark.slow

__all__ = ["core_job"]

KILLED = 128 + 9


@three_tries
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("elements", [10, pytest.param(1 << 20, marks=pytest.mark.nightly)])
def test_survivors_name_the_dead(core_job: CoreJob, elements: int, victim: int) -> None:
    end = core_job.conduct(3, program(on_gpu.dies, elements, victim))
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert set(end.seen) == {0, 1, 2} - {victim}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert f"rank {victim} is gone" in seen.text


def test_a_stopped_rank_goes_on(core_job: CoreJob) -> None:
    job = core_job.begin(2, program(on_gpu.reduces_400_times))
    pids = core_job.await_ranks(2)
    os.kill(pids[1], signal.SIGSTOP)
    time.sleep(1.0)
    go_on(pids[1])
    end = core_job.ended(job)
    assert end.status == 0, end.err
    assert {path.name for path in core_job.folder.glob("passed.*")} == {"passed.0", "passed.1"}


@three_tries
def test_an_exception_on_one_rank_ends_the_others(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(on_gpu.raises_and_stays_until_rank_0_has_heard))
    assert end.status != 0
    end.expect_in_time()
    assert set(end.seen) == {0, 1}, end.err
    assert "enough" in end.seen[0].text
