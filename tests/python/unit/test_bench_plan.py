"""The arithmetic of `python -m benchmarks.plan`, on cells whose right answer is known."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

from benchmarks.plan import fit
from benchmarks.plan.cells import Cell, Constants, predicted, workload
from benchmarks.plan.tasks import STRATEGIES, TASKS, cycle

TRUE = Constants(latency=8e-4, overhead=2e-3, share=0.8, inside=5e8, memory=2e9)


def alone(task: str) -> dict[str, Any]:
    """Its sleeps, as exact as they never are."""
    ready = list(itertools.accumulate(TASKS[task].backward))
    return {"forward": TASKS[task].forward, "backward": ready[-1], "update": 0.001, "ready": ready}


def cells(
    strategies: tuple[str, ...], rates: tuple[int, ...], shapes: tuple[tuple[int, int], ...]
) -> list[Cell]:
    made = []
    for (nodes, ranks), mbit, task, strategy in itertools.product(shapes, rates, TASKS, strategies):
        cell = Cell(nodes, ranks, mbit, task, strategy, 1.0, alone(task))
        made.append(dataclasses.replace(cell, seconds=predicted(cell, TRUE)))
    return made


def test_the_fit_finds_constants_that_predict_the_other_half() -> None:
    result = fit.evaluate(cells(("dense", "csc:keep=0.1,chunk_elements=1024"), (100, 1000), ((2, 1), (2, 2))))
    assert len(result.fitted) == len(result.tested) == 12
    assert result.quantile(0.5) < 0.02
    assert result.quantile(0.9) < 0.06
    assert result.constants.share == pytest.approx(TRUE.share, rel=0.1)


def test_halves_have_every_kind() -> None:
    first, second = fit.halves(cells(STRATEGIES, (100, 300, 1000), ((2, 1), (2, 2), (4, 2))))
    assert abs(len(first) - len(second)) <= 1
    for half in (first, second):
        assert {cell.strategy for cell in half} == set(STRATEGIES)
        assert {cell.mbit for cell in half} == {100, 300, 1000}
        assert {(cell.nodes, cell.ranks_per_node) for cell in half} == {(2, 1), (2, 2), (4, 2)}


def test_errors_have_signs_and_a_picture(tmp_path: Path) -> None:
    made = cells(("dense",), (100,), ((2, 1),))
    slower = [dataclasses.replace(cell, seconds=2 * cell.seconds) for cell in made]
    result = fit.Result(TRUE, made, slower, [predicted(cell, TRUE) for cell in made])
    assert result.errors == pytest.approx([-0.5] * 3)
    assert result.as_json()["median_error"] == pytest.approx(0.5)
    assert "strategy dense: median 50.0%, mean -50.0%" in result.lines()
    fit.draw(result, tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("task", TASKS)
def test_tasks(task: str) -> None:
    step = workload(Cell(2, 1, 100, task, "dense", 1.0, alone(task)))
    assert step.bytes == 4 * sum(TASKS[task].elements)
    assert len(TASKS[task].backward) == len(TASKS[task].elements)
    assert cycle("local_sgd:period=4") == 4
    assert cycle("dense") == 1
