"""benchmarks.time_to_loss: when a training is as good as dense, of numbers that are known."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.contenders import EPOCHS
from benchmarks.report import time_to_loss as report


def run(contender: str, second: float, *losses: float) -> dict[str, Any]:
    return {"contender": contender, "seed": 0, "seconds": [second] * len(losses), "losses": list(losses)}


WIRE: dict[str, Any] = {
    "mbit": 100,
    "runs": [
        *(run("dense", 4.0, 2.0, 1.0, 0.5), run("dense", 4.0, 2.0, 0.6, 0.4)),
        *(run("bf16", 2.0, 2.0, 0.5, 0.5), run("bf16", 2.0, 2.0, 1.0, 0.5)),
        *(run("csc", 1.0, 0.4, 0.7, 0.3), run("csc", 2.0, 0.5, 0.5, 0.6)),
        *(run("topk", 1.0, 0.1, 0.1, 0.6), run("topk", 1.0, 0.1, 0.1, 0.5)),
    ],
}


def test_the_target_is_the_worst_seed_of_dense() -> None:
    assert report.target(WIRE) == 0.5


def test_a_loss_counts_from_when_it_stays() -> None:
    seconds, losses = zip(*report.mean_curve(WIRE["runs"][4:6]), strict=True)
    assert seconds == pytest.approx((1.5, 3.0, 4.5))
    assert losses == pytest.approx((0.45, 0.6, 0.45))
    assert report.time_to_dense(WIRE, "bf16") == pytest.approx(6.0)
    assert report.time_to_dense(WIRE, "csc") == pytest.approx(4.5)
    assert report.time_to_dense(WIRE, "topk") is None  # not at the end


def test_the_table_compares_with_bf16() -> None:
    rows = report.rows({"wires": [WIRE], "steps": EPOCHS})
    assert rows[2] == ["100 Mbit/s", "CSC 10 %", "1.5 s", "0.4500", "0.3000 to 0.6000", "4.5 s", "0.75x"]
    assert rows[3][-2:] == ["not reached", ""]
