"""short_runs.py: `make test` takes one run of each test."""

from __future__ import annotations

from short_runs import DRAWN_OF, Run, is_drawn, variations


def run(test: str, ranks: int = 0, left_out: bool = False) -> Run:
    return Run(test, f"{test}[{ranks}]", ranks, left_out)


def test_the_least_number_of_several_ranks_stays() -> None:
    runs = [run("a", 1), run("a", 2), run("b", 3), run("a", 3), run("b", 4), run("a", 4)]
    assert variations(runs) == [0, 3, 4, 5]


def test_one_rank_stays_where_there_is_nothing_else() -> None:
    assert variations([run("a", 1), run("b", 1), run("b", 2, left_out=True)]) == [2]


def test_of_other_parameters_the_first_is_short() -> None:
    first, second = Run("a", "a[x]", 2), Run("a", "a[y]", 2)
    assert variations([first, second, run("c")]) == [1]
    assert variations([second, first, run("c")]) == [1]


def test_all_checks_of_a_variant_are_short_or_none() -> None:
    runs = [run("a", ranks) for ranks in (4, 4, 1, 2, 2, 3)]
    assert variations(runs) == [0, 1, 2, 5]


def test_a_run_that_is_left_out_does_not_stand_for_its_test() -> None:
    assert variations([run("a", 2, left_out=True), run("a", 3), run("a", 4)]) == [0, 2]
    assert variations([run("b", left_out=True)]) == [0]


def test_each_commit_draws_its_share_and_in_the_end_all() -> None:
    tests = [f"tests/python/parallel/test_a.py::test_{number}[4]" for number in range(300)]
    drawn = [{test for test in tests if is_drawn(test, f"commit {number}")} for number in range(100)]
    assert all(15 < len(some) < 65 for some in drawn)  # an eighth of 300 is 38
    assert DRAWN_OF == 8
    assert len(drawn[0] & drawn[1]) < 15
    assert set().union(*drawn) == set(tests)
