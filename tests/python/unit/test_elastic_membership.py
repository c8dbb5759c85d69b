"""Who is in the next generation: chosen cases. test_elastic_orders.py has all orders."""

from __future__ import annotations

import pytest

from roundelay.run.elastic.membership import Change, Limits, Membership


def _job(wanted: int = 3, least: int = 2, most: int = 4, **hosts: int) -> Membership:
    return Membership(Limits(wanted, least, most, (60.0, 600.0)), hosts=hosts or {"one": most})


def _start(job: Membership, now: float = 0.0) -> list[int]:
    return [job.started(host).number for host in job.hosts_to_start_on(now)]


def _ask(job: Membership, *numbers: int, has_state: bool = True) -> None:
    for number in numbers:
        job.asks(number, has_state=has_state)


def _running(**limits: int) -> Membership:
    """A job whose first generation has three ranks."""
    job = _job(most=limits.get("most", 3), least=limits.get("least", 2))
    _ask(job, *_start(job), has_state=False)
    assert job.next_generation(patient=True) == [0, 1, 2]
    return job


def test_the_first_generation_waits_for_all_that_are_wanted_while_it_is_patient() -> None:
    job = _job()
    assert _start(job) == [0, 1, 2, 3]
    _ask(job, 2, 1, has_state=False)
    assert job.next_generation(patient=True) is None
    assert job.next_generation(patient=False) == [1, 2]
    assert job.change() is Change.NONE
    _ask(job, 0, has_state=False)
    assert job.change() is Change.ADDED


def test_patience_begins_when_enough_wait() -> None:
    job = _job()
    _start(job)
    assert job.has_enough_for(100.0) == 0.0
    _ask(job, 1, has_state=False)
    assert job.has_enough_for(200.0) == 0.0
    _ask(job, 0, has_state=False)
    assert [job.has_enough_for(now) for now in (300.0, 307.0)] == [0.0, 7.0]
    job.gone(0, well=False, now=310.0)
    assert job.has_enough_for(320.0) == 0.0
    _ask(job, 2, has_state=False)
    assert [job.has_enough_for(now) for now in (330.0, 331.0)] == [0.0, 1.0]


def test_a_first_generation_that_waits_for_more_than_it_needs_is_not_late() -> None:
    job = _job()
    _ask(job, _start(job)[0], has_state=False)
    assert [job.waits(now) for now in (0.0, 590.0)] == [0.0, 590.0]
    _ask(job, 1, has_state=False)
    assert job.waits(601.0) == 0.0
    assert job.next_generation(patient=False) == [0, 1]
    _ask(job, 0, 1)
    job.gone(1, well=False, now=700.0)
    assert [job.waits(now) for now in (700.0, 710.0)] == [0.0, 10.0]


def test_survivors_keep_their_order_and_newcomers_follow() -> None:
    job = _running()
    job.gone(0, well=False, now=1.0)
    assert _start(job, 1.0) == [3]
    _ask(job, 3, has_state=False)
    assert job.next_generation(patient=True) is None  # 1 and 2 still run
    _ask(job, 2, 1)
    assert job.next_generation(patient=True) == [1, 2, 3]
    assert job.generation == 2


def test_a_rank_without_state_never_begins_a_generation_alone() -> None:
    job = _running(least=1)
    _ask(job, 0, 1, 2)
    assert job.next_generation(patient=True) == [0, 1, 2]
    for number in (0, 1, 2):
        job.gone(number, well=False, now=1.0)
    assert job.state_is_lost()
    _ask(job, *_start(job, 1000.0), has_state=False)
    assert job.next_generation(patient=False) is None


def test_before_anybody_has_state_a_lost_generation_is_begun_anew() -> None:
    job = _running()
    job.gone(0, well=False, now=1.0)
    _ask(job, 1, 2, has_state=False)
    assert not job.state_is_lost()
    assert job.next_generation(patient=True) == [1, 2]


def test_who_has_no_slot_any_more_leaves() -> None:
    job = _running()
    job.hosts = {"one": 2}
    assert job.change() is Change.REMOVED
    _ask(job, 0, 1, 2)
    assert job.dismissed() == [2]
    assert job.next_generation(patient=True) == [0, 1]


def test_a_host_that_fails_is_left_alone_for_longer_and_longer() -> None:
    job = _running()
    for number in (0, 1, 2):
        job.gone(number, well=False, now=1.0)
    assert job.is_blacklisted("one", 60.0)
    assert not job.is_blacklisted("one", 62.0)
    for number in _start(job, 62.0):
        job.gone(number, well=False, now=62.0)
    assert job.is_blacklisted("one", 181.0)
    assert not job.is_blacklisted("one", 183.0)


def test_nothing_begins_after_a_rank_has_ended_well() -> None:
    job = _running()
    job.gone(0, well=True, now=1.0)
    _ask(job, 1, 2)
    assert job.next_generation(patient=True) is None
    assert _start(job) == []
    assert job.change() is Change.NONE
    job.started("one")  # a replacement that is not ready yet holds nothing up
    assert not job.is_over()
    for number in (1, 2):
        job.gone(number, well=True, now=2.0)
    assert job.is_over()


@pytest.mark.parametrize("asks_first", [True, False])
def test_a_rank_that_wants_to_go_on_after_another_has_ended_is_refused(asks_first: bool) -> None:
    job = _running()
    if asks_first:
        _ask(job, 1)
    job.gone(0, well=True, now=1.0)
    if not asks_first:
        _ask(job, 1)
    assert job.refused() == [1]
    job.refuses(1)
    assert job.refused() == []
    late = job.started("one").number
    _ask(job, late, has_state=False)
    assert job.dismissed() == [late]
    job.dismisses(late)
    job.gone(2, well=True, now=2.0)
    assert not job.is_over()
    job.gone(1, well=False, now=2.0)
    assert job.is_over()


def test_two_that_are_lost_at_once_are_replaced_one_by_one() -> None:
    job = _running(least=1)
    job.gone(0, well=False, now=1.0)
    job.gone(2, well=False, now=1.0)
    assert _start(job, 1.0) == [3, 4]
    _ask(job, 1)
    assert job.next_generation(patient=True) == [1]
    _ask(job, 4, has_state=False)
    assert job.change() is Change.ADDED
    _ask(job, 1)
    assert job.next_generation(patient=True) == [1, 4]
    _ask(job, 3, has_state=False)
    assert job.change() is Change.ADDED


def test_a_host_that_comes_back_under_its_name_starts_anew() -> None:
    job = _job(wanted=2, least=1, most=4, one=1, two=1)
    _ask(job, *_start(job), has_state=False)
    assert job.next_generation(patient=True) == [0, 1]
    job.hosts = {"one": 1}
    assert job.change() is Change.REMOVED
    job.hosts = {"one": 1, "two": 1}  # before the next commit: nothing has happened
    assert job.change() is Change.NONE
    job.hosts = {"one": 1}
    _ask(job, 0, 1)
    assert job.dismissed() == [1]
    job.dismisses(1)
    assert job.next_generation(patient=True) == [0]
    job.hosts = {"one": 1, "two": 1}
    assert _start(job) == [2]
    job.gone(1, well=True, now=1.0)  # the old one's end is no end of the training
    assert not job.finished
    _ask(job, 2, has_state=False)
    assert job.change() is Change.ADDED


def test_a_newcomer_that_is_refused_holds_nothing_up_and_is_a_failure_of_its_host() -> None:
    job = _running()
    for now in (1.0, 2.0, 3.0):
        job.gone(max(job.workers), well=False, now=now)  # rank 2, and then who was refused
        for newcomer in _start(job, now):
            job.refuses(newcomer)
            assert job.change() is Change.NONE
    assert job.is_blacklisted("one", 4.0)
    assert not job.state_is_lost()
    _ask(job, 0, 1)
    assert job.next_generation(patient=True) == [0, 1]
