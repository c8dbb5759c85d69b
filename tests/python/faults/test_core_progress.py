"""A rank is stopped inside a collective: named after the progress deadline; continued before it, nothing happened."""

from __future__ import annotations

import time

import pytest

from core_job import INIT, PRELUDE, CoreJob, core_job, crowd, go_on, stop
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

TIMEOUT_S = 3.0
BYTES = 16 << 20
ALLOWED_S = TIMEOUT_S + BYTES / 10e6  # a slow link's rate is allowed beyond the timeout
VERDICT_S = 2.5  # until who is to blame is known
SETTINGS = f'os.environ["ROUNDELAY_PROGRESS_TIMEOUT"] = "{TIMEOUT_S}"\n'
LOOP = f"""
big = torch.ones({BYTES // 4})
with watched():
    for turn in itertools.count():
        if Path(sys.argv[1], "enough").exists(): big[0] = -1e9
        hvd.allreduce_(big, name="big", op=hvd.Average)
        if turn == 3: Path(sys.argv[1], f"going.{{rank}}").touch()
        if big[0] < 0: break
        assert (big == 1).all()
hvd.barrier()
stamp()
"""


@pytest.mark.parametrize(("np", "stopped"), [(2, 0), (2, 1), (3, 1)])
def test_a_stopped_rank_is_named(core_job: CoreJob, np: int, stopped: int) -> None:
    process = core_job.begin(np, LOOP, prelude="import itertools\n" + PRELUDE + SETTINGS + INIT)
    pids = core_job.await_ranks(np)
    for rank in range(np):
        core_job.wait_for(f"going.{rank}")
    since = time.time()
    stop(pids[stopped])
    others = set(range(np)) - {stopped}
    for rank in others:
        core_job.wait_for(f"seen.{rank}")
    end = core_job.ended(process)
    assert end.status != 0
    assert others <= set(end.seen)
    for rank in others:
        seen = end.seen[rank]
        assert seen.type == "HorovodInternalError"
        assert f"rank {stopped} entered allreduce of 'big'" in seen.text
        assert "then stopped" in seen.text
        assert TIMEOUT_S - 0.5 < seen.at - since < (ALLOWED_S + VERDICT_S) * crowd(), seen


@pytest.mark.parametrize("stopped", [0, 1])
def test_continued_in_time_nothing_happened(core_job: CoreJob, stopped: int) -> None:
    process = core_job.begin(2, LOOP, prelude="import itertools\n" + PRELUDE + SETTINGS + INIT)
    pids = core_job.await_ranks(2)
    for rank in range(2):
        core_job.wait_for(f"going.{rank}")
    stop(pids[stopped])
    time.sleep(1.5)
    go_on(pids[stopped])
    time.sleep(0.5)
    (core_job.folder / "enough").touch()
    end = core_job.ended(process)
    assert end.status == 0, end.err
    assert not end.seen


def test_continued_too_late_it_hears_what_was_decided(core_job: CoreJob) -> None:
    body = LOOP.replace("hvd.barrier()", "").replace("with watched():", "try:") + (
        "except hvd.HorovodInternalError as error:\n    note(error)\n    time.sleep(20)\n    os._exit(0)\n"
    )
    body = body.replace("\nstamp()\n", "\n")
    process = core_job.begin(2, body, prelude="import itertools\n" + PRELUDE + SETTINGS + INIT)
    pids = core_job.await_ranks(2)
    for rank in range(2):
        core_job.wait_for(f"going.{rank}")
    stop(pids[1])
    core_job.wait_for("seen.0")
    go_on(pids[1])
    since = time.time()
    core_job.wait_for("seen.1")
    end = core_job.ended(process)
    assert end.seen[1].text == end.seen[0].text
    assert end.seen[1].at - since < 1.0 * crowd()
