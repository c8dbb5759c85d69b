"""The arithmetic of `python -m benchmarks.plan`, on cells whose right answer is known."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.plan import fit, gate
from benchmarks.plan.__main__ import STORED, load
from benchmarks.plan.cells import Cell, Constants, measure, predicted
from benchmarks.plan.tasks import AUTO, STRATEGIES, TASKS, THROUGHOUT
from benchmarks.report import lines, picture
from tests.rig import why_not

_REASON = why_not()
TRUE = Constants(latency=8e-4, overhead=2e-3, share=0.8, turn=2e-3)
CORES = 2


def alone(task: str) -> dict[str, Any]:
    """Its sleeps, as exact as they never are."""
    ready = list(itertools.accumulate(TASKS[task].backward))
    return {"forward": TASKS[task].forward, "backward": ready[-1], "update": 0.001, "ready": ready}


def cells(
    strategies: tuple[str, ...], rates: tuple[int, ...], shapes: tuple[tuple[int, int], ...]
) -> list[Cell]:
    made = []
    for (nodes, ranks), mbit, task, strategy in itertools.product(shapes, rates, TASKS, strategies):
        cell = Cell(nodes, ranks, mbit, task, strategy, 1.0, alone(task), 0.0, CORES)
        made.append(dataclasses.replace(cell, seconds=predicted(cell, TRUE).seconds))
    return made


def test_the_fit_finds_constants_that_predict_the_other_half() -> None:
    result = fit.evaluate(cells(("dense", "csc:keep=0.1,chunk_elements=1024"), (100, 1000), ((2, 1), (2, 2))))
    assert len(result.fitted) == len(result.tested) == 12
    assert result.quantile(0.5) < 0.02
    assert result.quantile(0.9) < 0.06
    assert result.constants.share == pytest.approx(TRUE.share, rel=0.1)


def test_both_halves_of_the_cells_have_every_kind() -> None:
    first, second = fit.halves(cells(STRATEGIES, (100, 300, 1000), ((2, 1), (2, 2), (4, 2))))
    assert abs(len(first) - len(second)) <= 1
    for half in (first, second):
        assert {cell.strategy for cell in half} == set(STRATEGIES)
        assert {cell.mbit for cell in half} == {100, 300, 1000}
        assert {(cell.nodes, cell.ranks_per_node) for cell in half} == {(2, 1), (2, 2), (4, 2)}


def test_errors_have_signs_and_a_picture(tmp_path: Path) -> None:
    made = cells(("dense",), (100,), ((2, 1),))
    slower = [dataclasses.replace(cell, seconds=2 * cell.seconds) for cell in made]
    result = fit.Result(TRUE, made, slower, [predicted(cell, TRUE).seconds for cell in made])
    assert result.errors == pytest.approx([-0.5] * 3)
    assert result.as_json()["median_error"] == pytest.approx(0.5)
    assert "strategy dense: median 50.0%, mean -50.0%" in result.lines()
    picture.draw(lines.plan, result, tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def gate_cell(dense: float, bf16: float, auto: float) -> dict[str, Any]:
    """A cell whose repetitions are alike but for some noise, the same in all."""
    noise = (0.99, 1.0, 1.01, 1.0, 0.99, 1.01, 1.0, 1.0)
    seconds = dict(zip((*THROUGHOUT["rounding"], AUTO), (dense, bf16, auto), strict=True))
    return {
        "nodes": 2,
        "ranks_per_node": 1,
        "mbit": 100,
        "task": "even",
        "choice": "bf16 (dense 200.0 ms, bf16 150.0 ms a step)",
        "seconds": {name: [value * part for part in noise] for name, value in seconds.items()},
        "others": [0.0] * len(noise),
    }


def test_the_gate_counts_cells_in_which_auto_costs_something() -> None:
    good, bad = gate_cell(0.2, 0.15, 0.16), gate_cell(0.2, 0.25, 0.22)
    assert gate.over_dense(good).value == pytest.approx(0.8)
    assert gate.of_best(good) == pytest.approx(0.15 / 0.16)
    assert gate.of_best(bad) == pytest.approx(0.2 / 0.22)
    assert gate.summary([good, bad]).startswith(
        "in 1 of 2 cells the interval of auto / dense lies above 1.02"
    )
    assert gate.rows([good])[0][:4] == ["2x1", "100", "even", "200 ms"]
    assert gate.rows([good])[0][-1] == "bf16"


@pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}")
@pytest.mark.slow
def test_six_cells_send_what_is_predicted() -> None:
    """The load of the machine stretches times, but shortens none, and changes no payload."""
    work = list(itertools.product(("even", "large last"), STRATEGIES[:2] + STRATEGIES[-1:]))
    mbit = 300
    found = measure((2, 1), mbit, work, repetitions=1)
    assert [(cell.task, cell.strategy) for cell in found] == work
    for cell in found:
        prediction = predicted(cell, TRUE)
        payload = prediction.bytes[1]  # between the nodes
        assert payload < cell.sent < 1.12 * payload, cell
        assert cell.seconds > payload * 8 / (mbit * 1e6), cell


def test_the_page_has_the_errors_of_todays_model() -> None:
    """If they change: python -m benchmarks.plan --fit --cells docs/results/plan.json --docs."""
    found = json.loads(STORED.read_text())
    constants = Constants(**found["constants"])
    fitted, tested = fit.halves(load(STORED))
    assert len(tested) == len(found["tested"])
    result = fit.Result(constants, fitted, tested, [predicted(cell, constants).seconds for cell in tested])
    assert result.predictions == pytest.approx([cell["predicted"] for cell in found["tested"]], rel=1e-6)
    assert result.quantile(0.5) <= 0.1
    assert result.quantile(0.9) <= 0.2
    page = " ".join(STORED.with_suffix(".md").read_text().split())
    assert f"median error {result.quantile(0.5):.1%}, 90th percentile {result.quantile(0.9):.1%}" in page


@pytest.mark.parametrize("name", ["auto", "auto_lossy"])
def test_the_page_of_auto_has_its_cells(name: str) -> None:
    page = " ".join((STORED.parent / "auto.md").read_text().split())
    cells = json.loads((STORED.parent / f"{name}.json").read_text())["cells"]
    assert not any((gate.over_dense(cell).low or 0.0) > gate.MOST for cell in cells)
    assert min(map(gate.of_best, cells)) >= 0.95
    assert gate.summary(cells) in page


def test_the_page_of_auto_has_what_was_stored_of_racks() -> None:
    path = STORED.parent / "auto_racks.json"
    cells = json.loads(path.read_text())["cells"]
    page = path.with_name("auto.md").read_text()
    assert all(cell["choice"].startswith("allreduce:factors=2+2+2 ") for cell in cells)
    first, second, last = (f"{gate.over_dense(cell).value:.2f}" for cell in cells)
    assert f"fell to {first}, {second} and {last} of" in " ".join(page.split())
    fast = [gate.of_best(cell) for cell in cells]
    assert f"({min(fast):.1%} to {max(fast):.1%})" in page
