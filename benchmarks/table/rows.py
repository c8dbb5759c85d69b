"""The rows of the table, in its order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.table import (
    algorithms,
    allreduce,
    alone,
    cache,
    lars,
    levels,
    nodes,
    small,
    start,
    straggler,
    submit,
    tensors,
    train,
)
from benchmarks.table.result import Result
from benchmarks.table.run import Run


@dataclass(frozen=True)
class Row:
    """One row: its functions for measuring, quickly or not, and for the results."""

    measure: Callable[[Run, bool], Any]
    results: Callable[[Any], list[Result]]


ROWS: dict[str, Row] = {
    "allreduce": Row(allreduce.measure, allreduce.results),
    "small": Row(small.measure, small.results),
    "tensors": Row(tensors.measure, tensors.results),
    "train": Row(train.measure, train.results),
    "submit": Row(submit.measure, submit.results),
    "lars": Row(lars.measure, lars.results),
    "cache": Row(cache.measure, cache.results),
    "straggler": Row(straggler.measure, straggler.results),
    "alone": Row(alone.measure, alone.results),
    "start": Row(start.measure, start.results),
    "nodes": Row(nodes.measure, nodes.results),
    "fast_nodes": Row(nodes.measure_fast, nodes.fast_results),
    "levels": Row(levels.measure, levels.results),
    "algorithms": Row(algorithms.measure, algorithms.results),
}
