"""A rank is killed within a TopK step: after the reduce-scatter in the node, before the all-gather.

There topk writes what it keeps back. The victim forbids writing to those pages, and the signal handler of
that write kills it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core_job import CoreJob, core_job
from programs import killed_in_topk
from rank_program import program
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

RANKS, KILLED = 3, 128 + 9


@pytest.mark.slow  # test_csc_killed.py shows the same
def test_killed_between_the_calls(core_job: CoreJob, tmp_path: Path) -> None:
    end = core_job.conduct(RANKS, program(killed_in_topk.dies_in_a_step))
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert (tmp_path / "summed").exists(), end.err
    assert set(end.seen) == set(range(RANKS)) - {1}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert "rank 1 is gone" in seen.text
        assert " of 'gradient." in seen.text  # the bucket's allreduce, or the agreement after it
