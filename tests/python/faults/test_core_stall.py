"""A rank that does not submit: named after a time, given up after another; the job goes on."""

from __future__ import annotations

import os
import re
import signal

import pytest

from core_job import CoreJob, core_job, go_on, said_until
from programs import being_late
from rank_program import Program, program
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")


@pytest.mark.parametrize(("np", "late"), [pytest.param(2, 0, marks=pytest.mark.nightly), (2, 1), (4, 2)])
def test_an_operation_is_given_up_on_all_ranks_and_the_next_one_works(
    core_job: CoreJob, np: int, late: int
) -> None:
    end = core_job.conduct(np, program(being_late.all_note_the_error_and_reduce, late))
    assert end.status == 0, end.err
    assert f"rank {late} did not submit 'absent.weight'" in end.err
    texts = {seen.text for seen in end.seen.values()}
    assert len(end.seen) == np
    assert len(texts) == 1
    text = texts.pop()
    assert f"allreduce of 'absent.weight' was given up: rank {late} did not submit it within 3 s" in text
    assert "ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS" in text


def conduct_late(core_job: CoreJob, np: int, work: Program, *texts: str) -> str:
    """Runs a job whose late rank waits until these texts are said. Returns its stderr."""
    gate = core_job.folder / "gate"
    os.mkfifo(gate)
    process = core_job.begin(np, work)
    said = ""
    for text in texts:
        said += "" if text in said else "".join(said_until(process, text))
    with gate.open("wb"):
        end = core_job.ended(process)
    assert end.status == 0, end.err
    return said + end.err


@pytest.mark.slow
def test_without_an_abort_time_it_is_only_a_warning(core_job: CoreJob) -> None:
    """A line a second at most. A rank tells of all its tensors together, when it waits for the first one."""
    texts = "rank 1 did not submit 'layer.0'", "rank 1: its process"
    err = conduct_late(core_job, 3, program(being_late.is_late_with_nine), *texts)
    assert re.search(r"rank 1 did not submit 'layer.0', 'layer.1', .*'layer.5' and 3 more", err), err
    assert err.count("did not submit") <= float((core_job.folder / "waited").read_text()), err
    assert re.search(
        r"rank 1: its process \d+ waits .*; Python is in is_late_with_nine \(\w+\.py:\d+\)", err
    ), err


@pytest.mark.parametrize("late", [1, 0])
def test_a_late_rank_says_where_its_python_is(core_job: CoreJob, late: int) -> None:
    err = conduct_late(
        core_job, 2, program(being_late.is_late_in_a_function, late), f"rank {late}: its process"
    )
    place = r"Python is in load \(\w+\.py:\d+\), called from epoch \(\w+\.py:\d+\), called from is_late"
    assert re.search(rf"rank {late}: its process \d+ waits in the system call \w+; {place}", err), err


@pytest.mark.slow
def test_a_late_rank_whose_python_cannot_be_looked_at_says_so(core_job: CoreJob) -> None:
    holds_it = program(being_late.is_late_in_a_function, 1, keeps_the_gil=True)
    err = conduct_late(core_job, 2, holds_it, "rank 1: its process")
    assert re.search(r"rank 1: its process \d+ waits in .*; Python cannot be looked at.*GIL", err), err


@pytest.mark.slow
def test_where_python_is_can_be_kept_quiet(core_job: CoreJob) -> None:
    quiet = program(being_late.is_late_in_a_function, 1, stacks="0")
    err = conduct_late(core_job, 2, quiet, "rank 1: its process")
    assert re.search(r"rank 1: its process \d+ waits in the system call \w+$", err, re.MULTILINE), err
    assert "Python" not in err


@pytest.mark.slow
def test_ranks_that_wait_for_each_other_are_asked_about_names(core_job: CoreJob) -> None:
    process = core_job.begin(2, program(being_late.wait_for_each_other))
    line = said_until(process, "do names differ, or the order of calls?")[-1]
    core_job.folder.joinpath("go").touch()
    end = core_job.ended(process)
    assert end.status == 0, end.err
    assert re.search(
        r"rank (\d) did not submit 'of.rank.(\d)'.*; "
        r"meanwhile rank \1 submitted 'of.rank.\1', which rank \2 did not: "
        r"do names differ, or the order of calls\?",
        line,
    ), line


@pytest.mark.parametrize(("stopped", "steps"), [(1, 0), (0, 0), (1, 100)])
def test_a_stopped_rank_is_named_long_before_the_stall_time(
    core_job: CoreJob, stopped: int, steps: int
) -> None:
    """After some steps nothing is negotiated any more."""
    process = core_job.begin(3, program(being_late.is_late_after_steps, stopped, steps))
    pid = core_job.await_ranks(3)[stopped]
    core_job.wait_for("late")
    os.kill(pid, signal.SIGSTOP)
    said = said_until(process, f"rank {stopped}, which other ranks wait for, is stopped: its process {pid} ")
    assert not any("did not submit" in line or "answered nothing" in line for line in said), said
    core_job.folder.joinpath("go").touch()
    go_on(pid)
    end = core_job.ended(process)
    assert end.status == 0, end.err
    assert "is stopped" not in end.err  # one rank said it, once


@pytest.mark.slow
def test_different_names_are_named(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(being_late.give_up_different_names))
    assert end.status == 0, end.err
    for rank in range(2):
        text = end.seen[rank].text
        assert f"allreduce of 'of.rank.{rank}' was given up: rank {1 - rank} did not submit it" in text
