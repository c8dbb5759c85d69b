"""Collectives over levels beside flat ones: the table's rows, the goals, and the operations' own checks."""

from __future__ import annotations

import pytest

from benchmarks import collectives
from benchmarks.plan import collectives as predictions
from benchmarks.plan.cells import Constants

MIB = 1 << 20


def _plan(operation: str, size: int, flat: float, levels: float, received: float) -> dict[str, object]:
    cell = {
        "operation": operation,
        "bytes": size,
        "seconds": {"flat": [flat], "levels": [levels]},
        "sent": {"flat": 2.0 * size, "levels": received},
        "cpu": {"flat": [0.1], "levels": [0.1]},
        "others": [0.0],
    }
    return {"name": "2 nodes", "nodes": 2, "members": 2, "mbit": 1000, "cells": [cell]}


def test_the_least_bytes_are_those_of_the_others_nodes() -> None:
    assert collectives.least("allgather", 2) == 0.5
    assert collectives.least("allreduce", 4) == 1.5
    assert collectives.least("broadcast", 4) == 1.0


def test_a_row_has_bytes_times_and_their_ratio() -> None:
    (row,) = collectives.rows(_plan("allgather", 4 * MIB, 0.2, 0.1, 2.02 * MIB))
    assert row == ["allgather", "4 MiB", "2 MiB", "8 MiB", "2.02 MiB", "200 ms", "100 ms", "2.00x"]


@pytest.mark.parametrize(
    ("plan", "missed"),
    [
        (_plan("allgather", 25 * MIB, 0.2, 0.1, 12.6 * MIB), ""),
        (_plan("allgather", 25 * MIB, 0.2, 0.12, 12.6 * MIB), "0.60 of flat's time (goal: 0.55)"),
        (_plan("allgather", MIB, 0.2, 0.19, MIB // 2), ""),
        (_plan("broadcast", MIB, 0.2, 0.21, MIB), "1.05 of flat's time (goal: 1.00)"),
        (_plan("broadcast", MIB, 0.2, 0.1, 1.2 * MIB), "1.20 times the least bytes"),
    ],
)
def test_goals_that_are_missed_are_named(plan: dict[str, object], missed: str) -> None:
    found = collectives.goals(plan)
    assert len(found) == (1 if missed else 0)
    assert all(missed in line for line in found)


def test_the_formulas_have_the_bytes_that_were_counted() -> None:
    """Counted with headers. On 3 nodes more leaves the root of a flat broadcast than comes into a node."""
    alike = [
        cell
        for cell in predictions.cells()
        if (cell.nodes, cell.operation, cell.way) != (3, "broadcast", "flat")
    ]
    assert len(alike) == 3 * 4 * 3 * 2 - 3
    constants = Constants(0.0, 0.0, 1.0, 0.0)
    for cell in alike:
        most = 1.012 if cell.size >= MIB else 1.09  # messages without data count beside small ones
        assert 1.0 <= cell.received / cell.predicted(constants).bytes[-1] <= most, cell


def test_the_page_has_the_errors_of_the_predictions() -> None:
    every = list(predictions.cells())
    constants = predictions.fitted(every)
    text = " ".join(collectives.PART.page.read_text().split())
    assert predictions.error_line(predictions.errors(every, constants)) in text
    large = [cell for cell in every if cell.size >= MIB]
    assert predictions.error_line(predictions.errors(large, constants)) in text
