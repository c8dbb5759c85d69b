"""Wrong calls in a process group, late ranks and ranks that end: who waits hears the cause, by rank."""

from __future__ import annotations

import pytest

from core_job import CoreJob, core_job
from in_time import expect_within
from programs import grouped
from rank_program import program

__all__ = ["core_job"]

SOON_S = 6.0  # a rank that has left is known at once in a node, one that has died soon


BETWEEN_NODES = ("root's size", "splits of which some are large", "parts", "shards")


@pytest.mark.parametrize(
    ("what", "nodes"),
    [*((what, 1) for what in sorted(grouped.WRONG)), *((what, 2) for what in BETWEEN_NODES)],
)
def test_wrong_calls_name_both_ranks(core_job: CoreJob, what: str, nodes: int) -> None:
    end = core_job.conduct(2, program(grouped.calls_wrongly, what, nodes))
    assert set(end.seen) == {0, 1}, end.err
    for seen in end.seen.values():
        assert seen.type == "ProcessGroupMismatchError"
        assert "rank 0" in seen.text
        assert "rank 1" in seen.text
    expect_within(SOON_S, end.after_s, end.err)


def test_a_late_rank_hears_of_calls_without_bytes(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(grouped.runs_ahead_without_bytes))
    assert set(end.seen) == {0, 1}, end.err
    for seen in end.seen.values():
        assert seen.type == "ProcessGroupMismatchError"
    assert (core_job.folder / "ended.1").read_text() == "0"


def test_a_late_rank_is_named(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(grouped.comes_late))
    assert set(end.seen) == {0, 1}, end.err
    for seen in end.seen.values():
        assert seen.type == "ProcessGroupError"
        assert "rank 0 has waited 2" in seen.text
        assert "for rank 1" in seen.text


@pytest.mark.parametrize("how", ["call", "future", "message"])
@pytest.mark.parametrize(
    ("ends", "cause"),
    [
        ("kill", "rank 1 is gone"),
        ("raise", "rank 1 raised ValueError: my own fault"),
        ("exit", "rank 1 ended by sys.exit(3)"),
        ("destroy", "rank 1"),
    ],
)
def test_a_rank_that_ends_is_named(core_job: CoreJob, ends: str, cause: str, how: str) -> None:
    end = core_job.conduct(2, program(grouped.ends_early, ends, how))
    assert set(end.seen) == {0}, end.err
    assert cause in end.seen[0].text
    expect_within(SOON_S, end.after_s, end.err)


def test_a_thread_aborts_what_another_waits_for(core_job: CoreJob) -> None:
    end = core_job.conduct(3, program(grouped.aborts_from_another_thread, SOON_S))
    assert end.status == 0, end.err


def test_who_leaves_first_takes_nothing_away(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(grouped.ends_in_order))
    assert end.status == 0, end.err
    assert (core_job.folder / "got").read_text() == "[7.0, 7.0, 7.0]"


def test_a_wait_may_have_a_limit(core_job: CoreJob) -> None:
    end = core_job.conduct(2, program(grouped.waits_with_a_limit))
    assert end.status == 0, end.err
    assert "was not over after 50 ms" in end.seen[0].text
    assert [(core_job.folder / f"sum.{rank}").read_text() for rank in range(2)] == ["[2.0, 2.0, 2.0]"] * 2


def test_a_monitored_barrier_names_late_ranks(core_job: CoreJob) -> None:
    end = core_job.conduct(3, program(grouped.names_late_ranks))
    assert "Ranks 1, 2 failed to pass monitoredBarrier in 1000 ms" in end.seen[0].text
