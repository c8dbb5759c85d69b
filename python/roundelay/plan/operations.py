"""Predicts single collectives, over levels and flat: `roundelay plan --operations`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from roundelay import _model
from roundelay.plan.machines import Machines, Shape
from roundelay.plan.prediction import ONE_PLACE, in_chunks
from roundelay.plan.units import PlanError, bytes_text, size, time_text

# "reduce" is a reducescatter whose only row is one rank's.
OPERATIONS = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce")


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """One way to carry out an operation.

    bytes: what the busiest end of each level's link sends, or gets if that is more, innermost level first.
    """

    seconds: float
    bytes: tuple[float, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One operation on a vector of `size` bytes: an allgather's result, the others' input."""

    machines: Machines
    operation: str
    size: float
    levels: Way
    flat: Way


def sizes(text: str) -> list[float]:
    """Read sizes such as ``64KiB,25MiB``. PlanError: one is none."""
    try:
        return [size(part) for part in text.split(",")]
    except PlanError as error:
        raise PlanError(f"--operations: {error}") from None


def _usual(ranks: int, size: float) -> str:
    """Return the default algorithm of an allreduce (csrc/collective/tuning/select.cc)."""
    if ranks <= ONE_PLACE:
        return "direct" if size <= (32 << 10 if ranks == 2 else 2 << 10) else "pairwise"
    return "recursive_doubling" if size <= 256 << 10 else "ring"


def _programs(
    operation: str, cluster: _model.Cluster, size: float, root: int
) -> tuple[_model.Program, _model.Program]:
    if operation == "allreduce":
        levels = in_chunks(_model.over_levels(cluster, "pairwise", size), cluster, size)
        return levels, _model.flat(cluster, _usual(cluster.ranks, size), size)
    levels = _model.moved_over_levels(cluster, operation, size)
    return levels, _model.moved_flat(cluster, operation, size, root)


def look(machines: Machines, operation: str, size: float, root: int = 0) -> Row:
    """Predict one operation. root: the rank that a broadcast comes from, or a reduce goes to."""
    cluster = machines.model()
    levels, flat = (
        Way(
            machines.overhead() + _model.seconds(program, cluster),
            tuple(_model.bytes_sent(program, cluster)),
        )
        for program in _programs(operation, cluster, size, root)
    )
    return Row(machines, operation, size, levels, flat)


def rows(machines: Machines, nodes: Sequence[Shape], wanted: Sequence[float]) -> list[Row]:
    """Predict all operations of these sizes on all nodes."""
    return [
        look(machines.on(shape), operation, size)
        for shape in nodes
        for size in wanted
        for operation in OPERATIONS
    ]


def table(found: Sequence[Row]) -> Table:
    """Make the table: times and bytes. Those of the flat way are the outermost link's."""
    names = [
        found[0].machines.level_name(level) for level in range(max(len(row.levels.bytes) for row in found))
    ]
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns = ["nodes", "operation", "size", "over levels", f"bytes: {', '.join(names)}", "flat"]
    for column in [*columns, "bytes: outermost link"]:
        made.add_column(column, justify="left" if column == "operation" else "right")
    before = found[0]
    for row in found:
        if (row.machines.size, row.size) != (before.machines.size, before.size):
            made.add_section()
        before = row
        made.add_row(
            row.machines.shape_text(),
            row.operation,
            bytes_text(row.size),
            time_text(row.levels.seconds),
            ", ".join(map(bytes_text, row.levels.bytes)),
            time_text(row.flat.seconds),
            bytes_text(row.flat.bytes[-1]),
        )
    return made


def as_json(found: Sequence[Row]) -> dict[str, Any]:
    """Give the table's numbers. Times are seconds, sizes bytes."""
    return {
        "format": "roundelay operations",
        "version": 1,
        "units": {"time": "s", "size": "B"},
        "rows": [
            {
                "nodes": row.machines.nodes,
                "ranks": row.machines.ranks,
                "ranks_of_nodes": row.machines.sizes or None,
                "operation": row.operation,
                "size": row.size,
                "levels": dataclasses.asdict(row.levels),
                "flat": dataclasses.asdict(row.flat),
            }
            for row in found
        ],
    }
