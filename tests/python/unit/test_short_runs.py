"""short_runs.py: `make test` takes one run of each test."""

from __future__ import annotations

from short_runs import DRAWN_OF, Run, is_drawn, variations


def test_the_least_number_of_several_ranks_stays() -> None:
    runs = [Run("a", 1), Run("a", 2), Run("b", 3), Run("a", 3), Run("b", 4), Run("a", 4)]
    assert variations(runs) == [0, 3, 4, 5]


def test_one_rank_stays_where_there_is_nothing_else() -> None:
    assert variations([Run("a", 1), Run("b", 1), Run("b", 2, left_out=True)]) == [2]


def test_the_first_of_other_parameters_stays() -> None:
    assert variations([Run("a"), Run("a"), Run("b", 2), Run("b", 2), Run("c")]) == [1, 3]


def test_a_run_that_is_left_out_does_not_stand_for_its_test() -> None:
    assert variations([Run("a", left_out=True), Run("a"), Run("a")]) == [0, 2]
    assert variations([Run("b", left_out=True)]) == [0]


def test_each_commit_draws_its_share_and_in_the_end_all() -> None:
    tests = [f"tests/python/parallel/test_a.py::test_{number}[4]" for number in range(300)]
    drawn = [{test for test in tests if is_drawn(test, f"commit {number}")} for number in range(40)]
    assert all(60 < len(some) < 140 for some in drawn)  # a third of 300 is 100
    assert DRAWN_OF == 3
    assert len(drawn[0] & drawn[1]) < 60
    assert set().union(*drawn) == set(tests)
