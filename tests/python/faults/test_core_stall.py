"""A rank that does not submit: named after a time, given up after another; the job goes on."""

from __future__ import annotations

import pytest

from core_job import INIT, PRELUDE, CoreJob, core_job
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
    assert waited < 1.0 if rank == late else 2.5 < waited < 4.4, waited
else:
    raise AssertionError("no error")
assert hvd.allreduce(torch.ones(3), name="absent.weight", op=hvd.Sum).sum() == 3 * hvd.size()
stamp()
"""


@pytest.mark.parametrize(("np", "late"), [(2, 0), (2, 1), (4, 2)])
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
