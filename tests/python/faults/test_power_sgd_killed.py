"""A rank is killed within a PowerSGD step, between the two allreduces; the others name it.

There parameters that go densely are written back into the bucket. The victim forbids writing to a page of
one, when its gradient is in the bucket and the last gradient has not come yet. The signal handler of that
write kills it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core_job import CoreJob, core_job
from programs import killed_in_power_sgd
from rank_program import program
from ranks import mpirun

__all__ = ["core_job"]

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

RANKS, KILLED = 3, 128 + 9


@pytest.mark.slow  # test_csc_killed.py shows the same
def test_killed_between_the_allreduces_of_factors(core_job: CoreJob, tmp_path: Path) -> None:
    end = core_job.conduct(RANKS, program(killed_in_power_sgd.dies_in_a_step))
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert (tmp_path / "wrote").exists(), end.err
    assert set(end.seen) == set(range(RANKS)) - {1}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert "rank 1 is gone" in seen.text
        assert " of 'gradient." in seen.text  # the bucket's allreduce, or the agreement after it
