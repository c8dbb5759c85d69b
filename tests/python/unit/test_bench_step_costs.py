"""What a step costs: the command runs, and its comparison sees what is worse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import step_costs

pytest.importorskip("roundelay._core")


def _window(messages: int, **counters: int) -> dict[str, Any]:
    found = {"operations": 30, "locked_operations": 15, "messages_sent": messages, **counters}
    return {"counters": found, "thread_ns": [1000, 3000, 2000], "process_ns": 30_000}


def _line(costs: dict[str, Any]) -> dict[str, Any]:
    return {"scenario": "dense", "ranks": 2, "device": "cpu", "costs": costs}


def test_costs_are_those_of_the_window_with_the_fewest_messages() -> None:
    ranks = [
        {
            "windows": [_window(50), _window(10, schedule_unlocks=2)],
            "calls": [["backward", "a.py:f", 40], ["step", "b.py:g", 10]],
        },
        {"windows": [_window(0), _window(20)], "calls": [["backward", "a.py:f", 60]]},
    ]
    found = step_costs.costs(ranks, steps=10)
    assert found["messages"] == 3.0  # (10 + 20) / 10
    assert (found["operations"], found["locked"], found["steps a freeze"]) == (3.0, 0.5, 5.0)
    assert found["thread"] == pytest.approx(2e-6)
    assert found["process"] == pytest.approx(3e-6)
    assert (found["backward"], found["step"], found["zero_grad"]) == (6.0, 1.0, 0.0)
    assert len(step_costs.row(_line(found))) == len(step_costs.COLUMNS)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"messages": 2.9}, []),  # noise
        ({"messages": 4.0, "reports": 1.0}, ["messages 2 -> 4", "reports 0 -> 1"]),
        ({"backward": 3.0}, ["backward 2 -> 3"]),
        ({"backward": 1.0, "locked": 1.0}, []),
        ({"locked": 0.5}, ["locked 90% -> 50%"]),
        ({"locked": None}, ["locked 90% -> 0%"]),
        ({"steps a freeze": 30.0}, ["steps a freeze none -> 30"]),
    ],
)
def test_costs_that_have_risen_are_named(changed: dict[str, Any], said: list[str]) -> None:
    counts = ("bytes", "reports", "full", "cached", "orders", "wakeups", "step", "zero_grad")
    before = {
        **dict.fromkeys(counts, 0.0),
        "messages": 2.0,
        "operations": 6.0,
        "locked": 0.9,
        "steps a freeze": None,
        "backward": 2.0,
    }
    lines = step_costs.worse(_line({**before, **changed}), _line(before))
    assert lines == [f"dense, 2 ranks, cpu: {one}" for one in said]


@pytest.mark.starts_jobs
@pytest.mark.parametrize("scenarios", [["alone", "dense"], ["in turn", "gan", "join", "groups"]])
def test_the_command_writes_a_line_for_each_scenario(scenarios: list[str], tmp_path: Path) -> None:
    out = tmp_path / "now.json"
    words = ["--scenarios", *scenarios, "--steps", "6", "--parameters", "8", "--out", str(out)]
    step_costs.main(words)
    lines = [json.loads(text) for text in out.read_text().splitlines()]
    assert [line["scenario"] for line in lines] == scenarios
    for line in lines:
        alone = line["scenario"] == "alone"
        assert (line["costs"]["operations"] == 0) == alone
        # Alone there is only the hook that notices an optimizer which nobody has wrapped.
        assert all("unreduced.py" in place for _, place, _ in line["calls"]) == alone


@pytest.mark.slow
def test_the_cpu_time_of_a_gradient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(step_costs.GRADIENT, "repetitions", 3)
    out = tmp_path / "now.json"
    step_costs.main(["--scenarios", "alone", "--steps", "2", "--gradient", "--out", str(out)])
    gradient = json.loads(out.read_text().splitlines()[-1])["gradient"]
    assert gradient.keys() == {"hooked", "empty hooks"}
