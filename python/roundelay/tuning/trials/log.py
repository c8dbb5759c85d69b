"""Reads the log of searches: ROUNDELAY_AUTOTUNE_LOG, one JSON line for each setting that was tried."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from roundelay._internal.json_objects import WrongPartError, object_


@dataclasses.dataclass(frozen=True)
class Tried:
    """A setting, and the times of its steps on rank 0."""

    optimizer: str  # the prefix of its gradients' names
    date: str  # the search's end: settings of one search have one date
    theta: int  # bytes that close a bucket
    last: int  # most bytes of the last bucket; 0: no such limit
    buckets: int
    strategy: str
    predicted_ms: float | None  # the time from a backward's first gradient to the end of communication
    step_ms: float  # median
    fastest_ms: float
    slowest_ms: float
    kept: bool

    @property
    def name(self) -> str:
        """Strategy and sizes."""
        last = f", last {self.last / (1 << 20):g}" if self.last else ""
        return f"{self.strategy}, theta {self.theta / (1 << 20):g}{last} MiB"


def read(path: Path) -> list[list[Tried]]:
    """Returns the settings of each search, in order. OSError. WrongPartError: it is no such log."""
    searches: dict[tuple[str, str], list[Tried]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            content = json.loads(line)
        except ValueError:
            raise WrongPartError(f"line {number} is no JSON") from None
        tried = object_(Tried, f"line {number}", content)
        searches.setdefault((tried.optimizer, tried.date), []).append(tried)
    if not searches:
        raise WrongPartError("it has no lines: a search takes some 80 steps")
    return list(searches.values())
