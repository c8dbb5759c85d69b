"""The rows of the table, in its order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.table import (
    allreduce,
    alone,
    cache,
    lars,
    nodes,
    small,
    start,
    straggler,
    submit,
    tensors,
    topk,
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
    "topk": Row(topk.measure, topk.results),
}
