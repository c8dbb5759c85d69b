"""The rows of the table, in its order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.table import allreduce, alone, nodes, small, start, straggler, submit, tensors, train
from benchmarks.table.line import Line
from benchmarks.table.run import Run


@dataclass(frozen=True)
class Row:
    """How it is measured, whether only a few times, and the lines that it gives."""

    measure: Callable[[Run, bool], Any]
    lines: Callable[[Any], list[Line]]


ROWS: dict[str, Row] = {
    "allreduce": Row(allreduce.measure, allreduce.lines),
    "small": Row(small.measure, small.lines),
    "tensors": Row(tensors.measure, tensors.lines),
    "train": Row(train.measure, train.lines),
    "submit": Row(submit.measure, submit.lines),
    "straggler": Row(straggler.measure, straggler.lines),
    "alone": Row(alone.measure, alone.lines),
    "start": Row(start.measure, start.lines),
    "nodes": Row(nodes.measure, nodes.lines),
}
