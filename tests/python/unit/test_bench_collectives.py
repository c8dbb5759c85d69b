"""Collectives over levels beside flat ones: the table's rows, the goals, and the operations' own checks."""

from __future__ import annotations

import pytest

from benchmarks import collectives

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
