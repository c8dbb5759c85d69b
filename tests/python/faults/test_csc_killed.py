"""A rank is killed within a CSC step; the others name it, and a restart without the strategy's state says so.

The victim dies between the allreduce of the norms and that of the chunks. There csc writes the numbers of the
chosen chunks for the first time in a step. The victim forbids writing to their pages, and the signal handler
of that write kills it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core_job import CoreJob, core_job
from programs import killed_in_csc
from rank_program import program
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

RANKS, KILLED = 3, 128 + 9


@pytest.mark.parametrize("restarts", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_killed_between_norms_and_allreduce(core_job: CoreJob, tmp_path: Path, restarts: bool) -> None:
    end = core_job.conduct(RANKS, program(killed_in_csc.dies_in_a_step))
    assert end.status == KILLED, end.err
    end.expect_in_time()
    # The first chunk was sent in the step before, so that its norms are those of this step's gradients.
    assert float((tmp_path / "norm").read_text()) == killed_in_csc.CHUNK * sum(range(1, RANKS + 1)), end.err
    assert set(end.seen) == set(range(RANKS)) - {1}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert "rank 1 is gone" in seen.text
        assert " of 'gradient." in seen.text  # the bucket's allreduce, or the agreement after it
    if restarts:
        _restart(core_job, tmp_path)


def _restart(core_job: CoreJob, tmp_path: Path) -> None:
    for ready in tmp_path.glob("ready.*"):
        ready.unlink()
    (tmp_path / "failed_at").unlink()
    again = core_job.conduct(2, program(killed_in_csc.goes_on_from_the_checkpoint))
    assert again.status == 0, again.err
    assert len(list(tmp_path.glob("went on.*"))) == 2
    assert again.err.count("begins with nothing kept back") == 1, again.err
