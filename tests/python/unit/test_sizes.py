"""sizes.py: `make test` takes the small runs of each test."""

from __future__ import annotations

import sizes


def test_one_rank_and_the_least_number_of_several_stay() -> None:
    tests = [("a", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 4), ("a", 4)]
    assert [tests[place] for place in sizes.larger(tests)] == [("a", 3), ("b", 4), ("a", 4)]


def test_a_test_that_has_only_one_number_stays() -> None:
    assert sizes.larger([("four only", 4), ("another, with other parameters", 4), ("no ranks", 0)]) == []


def test_several_runs_with_the_least_number_stay() -> None:
    assert sizes.larger([("a", 3), ("a", 3), ("a", 4)]) == [2]
