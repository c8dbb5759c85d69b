"""The rows of the table, and their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.table.result import Result
from benchmarks.table.run import Run


@dataclass(frozen=True)
class Row:
    """One row: its functions for measuring, quickly or not, and for the results."""

    measure: Callable[[Run, bool], Any]
    results: Callable[[Any], list[Result]]
