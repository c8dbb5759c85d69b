"""A node is killed while parameters are on their way between nodes; all ranks of the other one name it."""

from __future__ import annotations

from core_job import CoreJob, core_job
from programs import killed_in_daso
from rank_program import program

__all__ = ["core_job"]

RANKS, KILLED = 4, 128 + 9


def test_a_node_that_dies_during_a_transfer_is_named(core_job: CoreJob) -> None:
    end = core_job.conduct(RANKS, program(killed_in_daso.node_1_dies), launcher="roundelayrun --gloo")
    assert end.status == KILLED, end.err
    end.expect_in_time()
    assert set(end.seen) == {0, 1}, end.err
    for seen in end.seen.values():
        assert seen.type == "HorovodInternalError"
        assert "rank 2 is gone" in seen.text or "rank 3 is gone" in seen.text, seen.text
    assert "parameters." in end.seen[0].text, end.seen[0].text
