"""The table of predictions for a terminal, and the same as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Table

from roundelay._internal.spelling.reading import read
from roundelay.plan.machines import Machines
from roundelay.plan.outlook import Row, errors_known
from roundelay.plan.study import Study
from roundelay.plan.units import bytes_text, time_text
from roundelay.plan.workload import Workload

_UNITS = {"time": "s", "size": "B", "bandwidth": "B/s"}
STEPS = 1000  # the unit of cost where the samples of an epoch are not known


def _cost_samples(row: Row, epoch: float | None) -> float:
    """Return the number of samples for which the column of costs gives the price."""
    return epoch if epoch is not None else STEPS * row.samples_per_second * row.seconds


def _cells(row: Row, samples: bool, epoch: float | None) -> list[str]:
    cells = [
        row.machines.shape_text(),
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
    before = rows[0].machines.size
    for row in rows:
        if row.machines.size != before:
            made.add_section()
        before = row.machines.size
        made.add_row(*_cells(row, samples, epoch))
    return made


def links_line(machines: Machines) -> str:
    """Return the line that names the links and where their numbers come from."""
    return (
        f"links: {machines.describe()}; from {', '.join(machines.source) or 'the command line and defaults'}"
    )


def inputs(workload: Workload, rows: Sequence[Row]) -> list[str]:
    """Return the lines that name the predictions' inputs, with sources and ages."""
    machines = rows[0].machines
    lines = [
        f"compute: {time_text(workload.forward)} forward, {time_text(workload.backward)} backward, "
        f"{time_text(workload.update)} update; {len(workload.gradients)} gradients, "
        f"{bytes_text(workload.bytes)}; from {workload.source}",
        links_line(machines),
        "model: a step's buckets are simulated; a stage of a collective takes the time of its formula",
    ]
    outside = dict.fromkeys(text for text in (workload.outside, *(row.outside for row in rows)) if text)
    return [*lines, *errors_known(rows), *(f"note: {text}" for text in [*outside, *_missing(rows)])]


def _missing(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what a text still needs to train with it, which does not change a step's time."""
    for text in dict.fromkeys(row.strategy for row in rows):
        try:
            read(text).check_complete()
        except ValueError as error:
            yield f"{error}: add it to train with it"


def row_json(row: Row, epoch: float | None) -> dict[str, Any]:
    """Give a row's numbers. Times are seconds, sizes bytes."""
    fields = [field.name for field in dataclasses.fields(row) if field.name != "machines"]
    numbers = {name: getattr(row, name) for name in fields}
    return {
        "nodes": row.nodes,
        "ranks": row.machines.ranks,
        "ranks_of_nodes": row.machines.sizes or None,
        **numbers,
        "loss": row.loss.value,
        "cost": row.cost(_cost_samples(row, epoch)),
    }


def as_json(
    workload: Workload, rows: Sequence[Row], advice: str, jitter: float, epoch: float | None
) -> dict[str, Any]:
    """Give everything that the table shows, and its inputs. Times are seconds, sizes bytes."""
    machines = dataclasses.asdict(rows[0].machines)
    for name in ("nodes", "sizes"):
        machines.pop(name)
    return {
        "format": "roundelay plan",
        "version": 1,
        "units": _UNITS,
        "workload": {
            "source": workload.source,
            "gradients": len(workload.gradients),
            "bytes": workload.bytes,
            "forward": workload.forward,
            "backward": workload.backward,
            "update": workload.update,
            "samples": workload.samples,
            "jitter": jitter,
            "error": workload.error,
            "outside": workload.outside,
        },
        "machines": machines,
        "rows": [row_json(row, epoch) for row in rows],
        "advice": advice,
    }


def study_json(workload: Workload, found: Study) -> dict[str, Any]:
    """Give a study's numbers, as as_json() does."""
    return {
        "format": "roundelay study",
        "version": 1,
        "units": _UNITS,
        "source": workload.source,
        "study": {
            quantity: [
                {"factor": factor, "rows": [row_json(row, None) for row in rows]} for factor, rows in lines
            ]
            for quantity, lines in found.items()
        },
    }
