"""The crossover's arithmetic, of numbers that are known, and its page."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import crossover


def rank(sent: dict[str, list[int]], **seconds: list[float]) -> dict[str, Any]:
    return {"sent": sent, "seconds": {**{name: [1.0] for name in sent}, **seconds}, "others": [0.0]}


def test_a_cell_has_the_node_that_sent_most_without_the_meetings() -> None:
    found = [
        rank({"alone": [10, 30], "dense": [120, 120], "0.5": [70, 70]}, dense=[1.0, 3.0, 2.0]),
        rank({"alone": [0, 0], "dense": [20, 320], "0.5": [70, 70]}),
    ]
    cell = crossover.cell(found, 2)
    assert cell["sent"] == {"dense": 150.0, "0.5": 50.0}
    assert cell["seconds"] == {"dense": 2.0, "0.5": 1.0}


def test_where_the_costs_cross() -> None:
    costs = {"dense": 100.0, "0.1": 20.0, "0.3": 80.0, "0.5": 120.0, "0.7": 160.0}
    assert crossover.crossing(costs) == pytest.approx(0.4)
    assert crossover.crossing({**costs, "dense": 300.0}) is None
    cell = {"nodes": 2, "sent": costs, "seconds": {**costs, "dense": 300.0}}
    assert crossover.crossings([cell]) == [["2", "0.500", "0.400", "none of these"]]
    assert crossover.rows([cell])[1] == ["2", "0.1", "0.20x", "20 B", "0.200x", "20 s", "0.067x"]
