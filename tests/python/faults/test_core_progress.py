"""A rank stops inside a collective: named after the deadline; if it goes on before, all is well."""

from __future__ import annotations

import time

import pytest

from core_job import INIT, LIMIT_S, PRELUDE, CoreJob, core_job, go_on
from in_time import expect_within, wait_until
from launch_job import state_of
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

TIMEOUT_S = 3.0
BYTES = 16 << 20
ALLOWED_S = TIMEOUT_S + BYTES / 10e6  # a slow link's rate is allowed beyond the timeout
VERDICT_S = 3.5  # kVerdictPatience (2.5 s) until who is to blame is known, and a second to be scheduled
SETTINGS = f"""
os.environ["ROUNDELAY_PROGRESS_TIMEOUT"] = "{TIMEOUT_S}"
os.environ["ROUNDELAY_FUSION_THRESHOLD"] = "0"
os.environ["ROUNDELAY_THETA"] = str(1 << 30)
os.environ["ROUNDELAY_CYCLE_TIME"] = "100"
"""
# A turn is a barrier and four operations, which only the flushes of the ranks order. When a rank is inside
# the last one, all have been ordered. The victim forbids writing to a page in the middle of its result; the
# signal handler of the write stops the process, and then allows it.
LOOP = """
import ctypes, mmap
victim, stop_in_turn = {victim}, {turn}
bigs = [torch.ones({elements}) for _ in range(4)]
libc = ctypes.CDLL(None, use_errno=True)
page = -(-(bigs[-1].data_ptr() + bigs[-1].nbytes // 2) // mmap.PAGESIZE) * mmap.PAGESIZE

def protect(allowed):
    assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), allowed) == 0

@ctypes.CFUNCTYPE(None, ctypes.c_int)
def stopping(_):
    stamp()
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    protect(mmap.PROT_READ | mmap.PROT_WRITE)

def loop():
    for turn in range(30):
        hvd.barrier()
        if rank == victim and turn == stop_in_turn:
            Path(sys.argv[1], "began").write_text(str(time.time()))
            libc.signal(ctypes.c_int(signal.SIGSEGV), stopping)
            protect(mmap.PROT_READ)
        handles = [hvd.allreduce_async_(big, name=f"big.{{i}}", op=hvd.Average) for i, big in enumerate(bigs)]
        for handle in handles: hvd.synchronize(handle)
        assert all((big == 1).all() for big in bigs)
"""


def program(victim: int) -> str:
    """Returns a program whose victim stops itself in the third turn; the test may let it go on."""
    return LOOP.format(victim=victim, turn=2, elements=BYTES // 4)


@pytest.mark.parametrize(("np", "stopped"), [(2, 1), (2, 0), (3, 1)])
def test_a_stopped_rank_is_named(core_job: CoreJob, np: int, stopped: int) -> None:
    body = program(stopped) + "with watched(): loop()"
    process = core_job.begin(np, body, prelude=PRELUDE + SETTINGS + INIT)
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
    process = core_job.begin(2, program(stopped) + "loop()", prelude=PRELUDE + SETTINGS + INIT)
    pids = core_job.await_ranks(2)
    wait_until(lambda: state_of(pids[stopped]) == "T", LIMIT_S, "the rank did not stop")
    time.sleep(1.5)
    go_on(pids[stopped])
    end = core_job.ended(process)
    assert end.status == 0, end.err
    assert end.after_s > 1.5


@pytest.mark.slow
def test_continued_too_late_it_hears_what_was_decided(core_job: CoreJob) -> None:
    body = (
        program(1)
        + """
try:
    loop()
except hvd.HorovodInternalError as error:
    note(error)
    while not Path(sys.argv[1], "enough").exists(): time.sleep(0.05)
"""
    )
    process = core_job.begin(2, body, prelude=PRELUDE + SETTINGS + INIT)
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
    body = """
if rank == 0:
    stamp()
    os.kill(os.getpid(), signal.SIGSTOP)
with watched(): hvd.allreduce(torch.ones(3), name="never")
"""
    stall = """
os.environ["ROUNDELAY_STALL_CHECK_TIME_SECONDS"] = "1"
os.environ["ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS"] = "4"
"""
    process = core_job.begin(2, body, prelude=PRELUDE + stall + INIT)
    core_job.wait_for("seen.1")
    end = core_job.ended(process)
    assert "rank 0, which coordinates, has answered nothing for" in end.seen[1].text
