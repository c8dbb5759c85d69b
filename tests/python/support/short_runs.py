"""Which run of a test with several sets of parameters `make test` takes, and which of the others CI."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

DRAWN_OF = 8


@dataclass(frozen=True)
class Run:
    """A test with one set of parameters.

    Args:
        test: the test's name, without its parameters.
        variant: the same with its parameters, but without the check: all its checks are short, or none.
        ranks: their number, 0 if the test has no such parameter.
        left_out: the run itself has the mark `slow` or `nightly`.

    """

    test: str
    variant: str
    ranks: int = 0
    left_out: bool = False

    def size(self) -> int:
        """Returns the key for the choice. A single rank comes last, because most of the code needs two."""
        return 1 << 30 if self.ranks == 1 else self.ranks


def variations(runs: Sequence[Run]) -> list[int]:
    """Returns the places of all runs but those of one variant of each test.

    This is the first one with the fewest ranks from two on.
    """
    chosen: dict[str, Run] = {}
    for run in runs:
        if not run.left_out and (run.test not in chosen or run.size() < chosen[run.test].size()):
            chosen[run.test] = run
    return [
        place
        for place, run in enumerate(runs)
        if run.test not in chosen or run.variant != chosen[run.test].variant
    ]


def is_drawn(variant: str, commit: str) -> bool:
    """Returns whether CI takes this slow variant: it takes one in DRAWN_OF, other ones for each commit."""
    digest = hashlib.sha256(f"{commit} {variant}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % DRAWN_OF == 0
