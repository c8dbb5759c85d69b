"""Which runs of a test with several numbers of ranks `make test` leaves to CI."""

from __future__ import annotations

from collections.abc import Sequence


def larger(tests: Sequence[tuple[str, int]]) -> list[int]:
    """Returns the places of the tests that run with fewer ranks too, and still with two or more.

    Args:
        tests: the name of each test without its parameters, and its number of ranks; 0 if it has none.

    """
    least: dict[str, int] = {}
    for name, ranks in tests:
        if ranks >= 2:
            least[name] = min(ranks, least.get(name, ranks))
    return [place for place, (name, ranks) in enumerate(tests) if ranks > least.get(name, ranks)]
