"""A rank that does not submit: named after a time, given up after another; the job goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from core_job import INIT, PRELUDE, CoreJob, core_job, go_on
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

SETTINGS = """
os.environ["ROUNDELAY_STALL_CHECK_TIME_SECONDS"] = "1"
os.environ["ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS"] = "{abort}"
"""

# Everyone notes the error; then an allreduce by all must work.
LATE = """
late = {late}
hvd.barrier()
if rank == late:
    time.sleep(4.5)
begin = time.time()
try:
    hvd.allreduce(torch.ones(3), name="absent.weight")
except hvd.HorovodInternalError as error:
    note(error)
    waited = time.time() - begin
    assert waited < 2.5 if rank == late else 2.5 < waited < 20.0, waited  # given up after 3 s
else:
    raise AssertionError("no error")
assert hvd.allreduce(torch.ones(3), name="absent.weight", op=hvd.Sum).sum() == 3 * hvd.size()
stamp()
"""


@pytest.mark.parametrize(("np", "late"), [pytest.param(2, 0, marks=pytest.mark.nightly), (2, 1), (4, 2)])
def test_given_up_and_on_it_goes(core_job: CoreJob, np: int, late: int) -> None:
    prelude = PRELUDE + SETTINGS.format(abort=3) + INIT
    end = core_job.ended(core_job.begin(np, LATE.format(late=late), prelude=prelude))
    assert end.status == 0, end.err
    assert f"rank {late} did not submit 'absent.weight'" in end.err
    texts = {seen.text for seen in end.seen.values()}
    assert len(end.seen) == np
    assert len(texts) == 1
    text = texts.pop()
    assert f"allreduce of 'absent.weight' was given up: rank {late} did not submit it within 3 s" in text
    assert "ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS" in text


@pytest.mark.slow
def test_without_an_abort_time_it_is_only_a_warning(core_job: CoreJob) -> None:
    body = """
if rank == 1: time.sleep(3.5)
handles = [hvd.allreduce_async(torch.ones(3), name=f"layer.{i}", op=hvd.Sum) for i in range(9)]
assert all(hvd.synchronize(handle).sum() == 3 * hvd.size() for handle in handles)
stamp()
"""
    prelude = PRELUDE + SETTINGS.format(abort=0) + INIT
    end = core_job.ended(core_job.begin(3, body, prelude=prelude))
    assert end.status == 0, end.err
    assert "rank 1 did not submit 'layer.0', 'layer.1', " in end.err
    assert "'layer.5' and 3 more" in end.err
    assert end.err.count("did not submit") <= 3, end.err
    assert re.search(r"rank 1: its process \d+ waits .*; Python is in <module> \(\w+\.py:\d+\)", end.err), (
        end.err
    )


def said_until(process: subprocess.Popen[bytes], text: str) -> list[str]:
    """Reads what the job says on stderr up to the first line with this text."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line.decode())
        if text in lines[-1]:
            return lines
    raise AssertionError(f"nobody said {text!r}\n{''.join(lines)}")


LOAD = """
import ctypes
def load():
    {how}
def epoch():
    load()
if rank == {late}: epoch()
hvd.allreduce(torch.ones(3), name="step")
"""
SLEEPS = "time.sleep(3)"
KEEPS_THE_GIL = "ctypes.PyDLL(None).usleep(6_000_000)"


@pytest.mark.parametrize("late", [1, 0])
def test_a_late_rank_says_where_its_python_is(core_job: CoreJob, late: int) -> None:
    prelude = PRELUDE + SETTINGS.format(abort=0) + INIT
    end = core_job.ended(core_job.begin(2, LOAD.format(how=SLEEPS, late=late), prelude=prelude))
    assert end.status == 0, end.err
    place = r"Python is in load \(\w+\.py:\d+\), called from epoch \(\w+\.py:\d+\), called from <module>"
    assert re.search(rf"rank {late}: its process \d+ waits in the system call \w+; {place}", end.err), end.err


@pytest.mark.slow
def test_a_late_rank_whose_python_cannot_be_looked_at_says_so(core_job: CoreJob) -> None:
    prelude = PRELUDE + SETTINGS.format(abort=0) + INIT
    end = core_job.ended(core_job.begin(2, LOAD.format(how=KEEPS_THE_GIL, late=1), prelude=prelude))
    assert end.status == 0, end.err
    assert re.search(r"rank 1: its process \d+ waits in .*; Python cannot be looked at.*GIL", end.err), (
        end.err
    )


@pytest.mark.slow
def test_where_python_is_can_be_kept_quiet(core_job: CoreJob) -> None:
    quiet = 'os.environ["ROUNDELAY_STALL_STACKS"] = "0"\n'
    prelude = PRELUDE + SETTINGS.format(abort=0) + quiet + INIT
    end = core_job.ended(core_job.begin(2, LOAD.format(how=SLEEPS, late=1), prelude=prelude))
    assert end.status == 0, end.err
    assert re.search(r"rank 1: its process \d+ waits in the system call \w+$", end.err, re.MULTILINE), end.err
    assert "Python" not in end.err


UNTIL_GO = "while not Path(sys.argv[1], 'go').exists(): time.sleep(0.01)\n"


@pytest.mark.slow
def test_ranks_that_wait_for_each_other_are_asked_about_names(core_job: CoreJob) -> None:
    body = f"""
mine = hvd.allreduce_async(torch.ones(3), name=f"of.rank.{{rank}}")
{UNTIL_GO}
hvd.allreduce(torch.ones(3), name=f"of.rank.{{1 - rank}}")
hvd.synchronize(mine)
"""
    process = core_job.begin(2, body, prelude=PRELUDE + SETTINGS.format(abort=0) + INIT)
    line = said_until(process, "are the names different?")[-1]
    core_job.folder.joinpath("go").touch()
    end = core_job.ended(process)
    assert end.status == 0, end.err
    assert re.search(
        r"rank (\d) did not submit 'of.rank.(\d)'.*; "
        r"meanwhile rank \1 submitted 'of.rank.\1', which rank \2 did not: are the names different\?",
        line,
    ), line


@pytest.mark.parametrize(("stopped", "steps"), [(1, 0), (0, 0), (1, 100)])
def test_a_stopped_rank_is_named_long_before_the_stall_time(
    core_job: CoreJob, stopped: int, steps: int
) -> None:
    """After some steps nothing is negotiated any more."""
    body = f"""
def step():
    total = hvd.allreduce(torch.ones(3), name="step", op=hvd.Sum)
    assert total.sum() == 3 * hvd.size()
for _ in range({steps}): step()
if rank == {stopped}:
    Path(sys.argv[1], "late").touch()
    {UNTIL_GO}
step()
"""
    process = core_job.begin(3, body)
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
    body = """
try:
    hvd.allreduce(torch.ones(3), name=f"of.rank.{rank}")
except hvd.HorovodInternalError as error:
    note(error)
time.sleep(2)
hvd.barrier()
"""
    prelude = PRELUDE + SETTINGS.format(abort=2) + INIT
    end = core_job.ended(core_job.begin(2, body, prelude=prelude))
    assert end.status == 0, end.err
    for rank in range(2):
        text = end.seen[rank].text
        assert f"allreduce of 'of.rank.{rank}' was given up: rank {1 - rank} did not submit it" in text
