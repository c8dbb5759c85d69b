"""Outcomes of tests, in a file for each backend and world size, and what they say of roundelay."""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.torch_suite.exceptions import EXEMPT


@dataclass(frozen=True)
class Outcome:
    """What became of a test: passed, failed or skipped, in a part (listing.py). `why`: of the last two."""

    kind: str
    part: str
    seconds: float
    why: str = ""


class Results:
    """A file of outcomes by test. Processes that run shares of the tests may write to one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Outcome]:
        """Return what is known; nothing, if no test has run."""
        if not self.path.exists():
            return {}
        return {name: Outcome(**one) for name, one in json.loads(self.path.read_text()).items()}

    def left_for(self, part: str, names: Iterable[str]) -> list[str]:
        """Return the tests without those that another part has run."""
        known = self.read()
        return [
            name
            for name in names
            if name not in known or known[name].kind == "skipped" or known[name].part == part
        ]

    def put(self, name: str, outcome: Outcome) -> None:
        """Add a test's outcome, or replace it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = {**self.read(), name: outcome}
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps({key: asdict(known[key]) for key in sorted(known)}, indent=1) + "\n")
            part.rename(self.path)


def counts(outcomes: dict[str, Outcome]) -> Counter[str]:
    """Return how many tests passed, failed and were skipped."""
    return Counter(outcome.kind for outcome in outcomes.values())


def worse(gloo: dict[str, Outcome], ours: dict[str, Outcome]) -> list[str]:
    """Return the tests that gloo passes and ours does not, of those that ran, without the exempt ones."""
    return sorted(
        name
        for name, outcome in ours.items()
        if outcome.kind != "passed" and name not in EXEMPT and name in gloo and gloo[name].kind == "passed"
    )
