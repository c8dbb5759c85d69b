"""The table of predictions for a terminal, and the same as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from roundelay.plan.outlook import Row
from roundelay.plan.units import bytes_text, time_text
from roundelay.plan.workload import Workload

STEPS = 1000  # the unit of cost where the samples of an epoch are not known


def _cost_samples(row: Row, epoch: float | None) -> float:
    """Return the samples that the column of costs counts."""
    return epoch if epoch is not None else STEPS * row.samples_per_second * row.seconds


def _cells(row: Row, samples: bool, epoch: float | None) -> list[str]:
    cells = [
        str(row.nodes),
        row.strategy,
        time_text(row.seconds),
        f"{time_text(row.low)} to {time_text(row.high)}",
    ]
    if samples:
        cells.append(f"{row.samples_per_second:,.0f}")
    cells += [f"{row.efficiency:.0%}", ", ".join(map(bytes_text, row.bytes)), row.limit]
    cost = row.cost(_cost_samples(row, epoch))
    return cells if cost is None else [*cells, f"{cost:,.2f}"]


def table(rows: Sequence[Row], samples: bool, epoch: float | None) -> Table:
    """Make the table; `samples`: the samples of a step are known. Bytes are those of a step."""
    levels = [rows[0].machines.level_name(level) for level in range(max(len(row.bytes) for row in rows))]
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns = ["nodes", "strategy", "step", "90 % of steps"]
    columns += ["samples/s"] if samples else []
    columns += ["efficiency", f"bytes: {', '.join(levels)}", "limit"]
    if rows[0].machines.price is not None:
        columns.append("cost/epoch" if epoch is not None else f"cost/{STEPS:,} steps")
    for column in columns:
        made.add_column(column, justify="left" if column in ("strategy", "limit") else "right")
    before = rows[0].nodes
    for row in rows:
        if row.nodes != before:
            made.add_section()
        before = row.nodes
        made.add_row(*_cells(row, samples, epoch))
    return made


def inputs(workload: Workload, rows: Sequence[Row]) -> list[str]:
    """Say what the predictions rest on, with sources and ages."""
    machines = rows[0].machines
    lines = [
        f"compute: {time_text(workload.forward)} forward, {time_text(workload.backward)} backward, "
        f"{time_text(workload.update)} update; {len(workload.gradients)} gradients, "
        f"{bytes_text(workload.bytes)}; from {workload.source}",
        f"links: {machines.describe()}; from {', '.join(machines.source) or 'the command line and defaults'}",
    ]
    outside = dict.fromkeys(row.outside for row in rows if row.outside)
    return [*lines, *(f"note: {text}" for text in outside)]


def as_json(
    workload: Workload, rows: Sequence[Row], advice: str, jitter: float, epoch: float | None
) -> dict[str, Any]:
    """Give everything that the table shows, and its inputs. Times are seconds, sizes bytes."""
    machines = dataclasses.asdict(rows[0].machines)
    machines.pop("nodes")
    return {
        "format": "roundelay plan",
        "version": 1,
        "units": {"time": "s", "size": "B", "bandwidth": "B/s"},
        "workload": {
            "source": workload.source,
            "gradients": len(workload.gradients),
            "bytes": workload.bytes,
            "forward": workload.forward,
            "backward": workload.backward,
            "update": workload.update,
            "samples": workload.samples,
            "jitter": jitter,
        },
        "machines": machines,
        "rows": [
            {
                **{
                    field.name: getattr(row, field.name)
                    for field in dataclasses.fields(row)
                    if field.name != "machines"
                },
                "nodes": row.nodes,
                "cost": row.cost(_cost_samples(row, epoch)),
            }
            for row in rows
        ],
        "advice": advice,
    }
