"""A rank that does not submit: named after a time, given up after another; the job goes on."""

from __future__ import annotations

import os
import re
import signal

import pytest

from core_job import INIT, PRELUDE, CoreJob, core_job, go_on, said_until
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

SETTINGS = """
os.environ["ROUNDELAY_STALL_CHECK_TIME_SECONDS"] = "1"
os.environ["ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS"] = "{abort}"
"""

# Everyone notes the error, the late rank when all others have it; then an allreduce by all must work. The
# clock of the operation runs from the first rank that comes, which is after all have begun the barrier.
LATE = """
late = {late}
begin = time.time()
hvd.barrier()
if rank == late:
    while len(list(Path(sys.argv[1]).glob("seen.*"))) < hvd.size() - 1: time.sleep(0.01)
try:
    hvd.allreduce(torch.ones(3), name="absent.weight")
except hvd.HorovodInternalError as error:
    note(error)
    assert 3.0 < time.time() - begin < 20.0, time.time() - begin
else:
    raise AssertionError("no error")  # or the late rank did not get it at once, but met the others' next one
assert hvd.allreduce(torch.ones(3), name="absent.weight", op=hvd.Sum).sum() == 3 * hvd.size()
stamp()
"""


@pytest.mark.parametrize(("np", "late"), [pytest.param(2, 0, marks=pytest.mark.nightly), (2, 1), (4, 2)])
def test_an_operation_is_given_up_on_all_ranks_and_the_next_one_works(
    core_job: CoreJob, np: int, late: int
) -> None:
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


# The late rank waits, in a system call, until the test has read what is said of it.
WAITS = "os.close(os.open(Path(sys.argv[1], 'gate'), os.O_RDONLY))"
KEEPS_THE_GIL = "ctypes.PyDLL(None).open(os.fsencode(Path(sys.argv[1], 'gate')), os.O_RDONLY)"


def conduct_late(core_job: CoreJob, np: int, body: str, prelude: str, *texts: str) -> str:
    """Runs a job whose late rank waits until these texts are said. Returns its stderr."""
    gate = core_job.folder / "gate"
    os.mkfifo(gate)
    process = core_job.begin(np, body, prelude=prelude)
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
    body = f"""
begin = time.time()
hvd.barrier()
if rank == 1: {WAITS}
handles = [hvd.allreduce_async(torch.ones(3), name=f"layer.{{i}}", op=hvd.Sum) for i in range(9)]
assert all(hvd.synchronize(handle).sum() == 3 * hvd.size() for handle in handles)
if rank == 1: Path(sys.argv[1], "waited").write_text(str(time.time() - begin))
"""
    prelude = PRELUDE + SETTINGS.format(abort=0) + 'os.environ["ROUNDELAY_CYCLE_TIME"] = "10000"\n' + INIT
    err = conduct_late(core_job, 3, body, prelude, "rank 1 did not submit 'layer.0'", "rank 1: its process")
    assert re.search(r"rank 1 did not submit 'layer.0', 'layer.1', .*'layer.5' and 3 more", err), err
    assert err.count("did not submit") <= float((core_job.folder / "waited").read_text()), err
    assert re.search(r"rank 1: its process \d+ waits .*; Python is in <module> \(\w+\.py:\d+\)", err), err


LOAD = """
import ctypes
def load():
    {how}
def epoch():
    load()
if rank == {late}: epoch()
hvd.allreduce(torch.ones(3), name="step")
"""


@pytest.mark.parametrize("late", [1, 0])
def test_a_late_rank_says_where_its_python_is(core_job: CoreJob, late: int) -> None:
    prelude = PRELUDE + SETTINGS.format(abort=0) + INIT
    body = LOAD.format(how=WAITS, late=late)
    err = conduct_late(core_job, 2, body, prelude, f"rank {late}: its process")
    place = r"Python is in load \(\w+\.py:\d+\), called from epoch \(\w+\.py:\d+\), called from <module>"
    assert re.search(rf"rank {late}: its process \d+ waits in the system call \w+; {place}", err), err


@pytest.mark.slow
def test_a_late_rank_whose_python_cannot_be_looked_at_says_so(core_job: CoreJob) -> None:
    prelude = PRELUDE + SETTINGS.format(abort=0) + INIT
    body = LOAD.format(how=KEEPS_THE_GIL, late=1)
    err = conduct_late(core_job, 2, body, prelude, "rank 1: its process")
    assert re.search(r"rank 1: its process \d+ waits in .*; Python cannot be looked at.*GIL", err), err


@pytest.mark.slow
def test_where_python_is_can_be_kept_quiet(core_job: CoreJob) -> None:
    quiet = 'os.environ["ROUNDELAY_STALL_STACKS"] = "0"\n'
    prelude = PRELUDE + SETTINGS.format(abort=0) + quiet + INIT
    err = conduct_late(core_job, 2, LOAD.format(how=WAITS, late=1), prelude, "rank 1: its process")
    assert re.search(r"rank 1: its process \d+ waits in the system call \w+$", err, re.MULTILINE), err
    assert "Python" not in err


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
while len(list(Path(sys.argv[1]).glob("seen.*"))) < 2: time.sleep(0.01)  # a barrier has 2 s, too
hvd.barrier()
"""
    prelude = PRELUDE + SETTINGS.format(abort=2) + INIT
    end = core_job.ended(core_job.begin(2, body, prelude=prelude))
    assert end.status == 0, end.err
    for rank in range(2):
        text = end.seen[rank].text
        assert f"allreduce of 'of.rank.{rank}' was given up: rank {1 - rank} did not submit it" in text
