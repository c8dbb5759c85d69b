"""Compares predictions of collectives over levels with the times that benchmarks.collectives has stored.

Constants are fitted to the allreduces, as `roundelay tune` does. The other operations are only predicted.
Needs neither root nor a job.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import collectives, show
from benchmarks.collectives import FLAT, LEVELS
from benchmarks.plan.cells import Constants
from benchmarks.plan.fit import least
from roundelay.plan import operations

MBIT = 1000  # the rate on which most cells were measured
_FITTED = "allreduce"
_COLUMNS = ("nodes", "operation", "S", "way", "measured", "predicted", "error", "bytes, measured / predicted")


@dataclass(frozen=True)
class Cell:
    """One way of one operation on one rig."""

    nodes: int
    members: int
    operation: str
    size: int
    way: str
    seconds: float
    received: float  # the bytes that came into the node that got most, with headers
    cores: int

    def predicted(self, constants: Constants) -> operations.Way:
        """Predict it. The root of a broadcast is the last rank."""
        machines = constants.machines(self.nodes, self.members, MBIT, self.cores)
        row = operations.look(machines, self.operation, self.size, root=machines.ranks - 1)
        return {FLAT: row.flat, LEVELS: row.levels}[self.way]


def cells() -> Iterator[Cell]:
    """Yield the stored cells of one rate."""
    stored: dict[str, Any] = json.loads(collectives.STORED.read_text())
    for plan in stored["plans"]:
        if plan["mbit"] != MBIT:
            continue
        rig, cores = (plan["nodes"], plan["members"]), stored["machine"]["cores"]
        for cell in plan["cells"]:
            for way, seconds in cell["seconds"].items():
                middle = statistics.median(seconds)
                yield Cell(*rig, cell["operation"], cell["bytes"], way, middle, cell["sent"][way], cores)


def fitted(every: Sequence[Cell]) -> Constants:
    """Fit the constants to the allreduces."""
    known = [cell for cell in every if cell.operation == _FITTED]
    return least(lambda constants: [cell.predicted(constants).seconds / cell.seconds for cell in known])


def errors(every: Sequence[Cell], constants: Constants) -> list[float]:
    """Return the predictions' relative errors, of cells that the fit has not seen."""
    return [
        cell.predicted(constants).seconds / cell.seconds - 1 for cell in every if cell.operation != _FITTED
    ]


def error_line(found: Sequence[float]) -> str:
    """Return the summary that docs/results/fabrics.md has."""
    size = np.abs(found)
    return (
        f"{len(found)} cells: median error {np.median(size):.0%}, "
        f"90th percentile {np.quantile(size, 0.9):.0%}, largest {np.max(size):.0%}"
    )


def main() -> None:
    """Print the predictions beside the measurements."""
    every = list(cells())
    constants = fitted(every)
    rows = []
    for cell in every:
        way = cell.predicted(constants)
        rows.append(
            [
                f"{cell.nodes} x {cell.members}",
                cell.operation,
                show.size_text(cell.size),
                cell.way,
                show.seconds_text(cell.seconds),
                show.seconds_text(way.seconds),
                f"{way.seconds / cell.seconds - 1:+.0%}",
                f"{cell.received / way.bytes[-1]:.3f}",
            ]
        )
    show.console().print(show.table(_COLUMNS, rows, 1))
    print(f"fitted to the {_FITTED}s: {constants}")
    print(f"the others: {error_line(errors(every, constants))}")
    large = [cell for cell in every if cell.size >= 1 << 20]
    print(f"from 1 MiB on: {error_line(errors(large, constants))}")


if __name__ == "__main__":
    main()
