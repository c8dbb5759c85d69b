"""The ladder's arithmetic, of numbers that are known, and its page and picture."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.contenders import ALONE, GRADIENTFLOW, dense, least_sent, low_rank, pairs
from benchmarks.gradientflow.message import message_bytes
from benchmarks.gradientflow.result import Row, Wire, from_json, wire
from benchmarks.gradientflow.task import make_model
from benchmarks.report import gradientflow as report
from benchmarks.report import picture
from benchmarks.table.result import Estimate
from roundelay.torch.strategies import Bucket, Part, Sent

MACHINE = {"cores": 2, "cpu": "x86", "torch": "2", "mpi": "Open MPI 5", "python": "3.11"}
SHAPES = [(64, 1024), (64,), (10, 64), (32768, 2)]


def rank(seconds: dict[str, list[float]], others: list[float], **trained: dict[str, Any]) -> dict[str, Any]:
    return {"shapes": SHAPES, "seconds": seconds, "others": others, "trained": trained}


def trained(sent: list[int], loss: float = 0.5, weights: str = "same") -> dict[str, Any]:
    return {"sent": sent, "loss": loss, "weights": weights}


def test_the_model_has_alexnets_proportions() -> None:
    shapes = [tuple(parameter.shape) for parameter in make_model().parameters()]
    assert dense(4)(shapes) == pytest.approx(15.9 * 2**20, rel=0.01)
    sizes = sorted(map(math.prod, shapes))
    assert sum(sizes[-2:]) / sum(sizes) == pytest.approx(0.94, abs=0.005)


def test_payloads_have_the_bytes_of_their_formulas() -> None:
    elements = 65536 + 64 + 640 + 65536
    assert dense(2)(SHAPES) == 2 * elements
    # rank 4 halves the matrix of 64 x 1024, but not those of 10 x 64 and 32768 x 2
    assert low_rank(4)(SHAPES) == 4 * (4 * (64 + 1024) + 64 + 4 * 74 + 65536)
    assert low_rank(5)(SHAPES) == 4 * (5 * (64 + 1024) + 64 + 640 + 65536)
    assert [least_sent(100.0, nodes) for nodes in (1, 2, 4)] == [0.0, 100.0, 150.0]
    # 4 bytes for a hundredth of the large matrices; 64 and 640 elements go whole
    assert pairs(0.01)(SHAPES) == pytest.approx(4 * 0.01 * 2 * 65536 + 2 * (64 + 640))


def test_the_bytes_are_without_those_of_the_meetings() -> None:
    seconds = {"alone": [1.0] * 3, "ddp": [4.0] * 3, "lazy": [2.0] * 3}
    ranks = [
        rank(
            seconds,
            [0.0, 0.0, 0.5],
            alone=trained([10, 10, 10], weights=own),
            ddp=trained([110, 110, 110]),
            lazy=trained([60, 60, 60], loss=0.25),
        )
        for own in ("one", "other")
    ]
    found = wire(ranks, 100, 2, 4)
    assert (found.mbit, found.steps, found.repetitions, found.disturbed, found.counted) == (100, 7, 3, 1, 2)
    alone, ddp, lazy = found.rows
    assert (alone.loss, alone.exposed, alone.ratio, alone.step.value) == (None, None, None, 1.0)
    assert lazy.exposed == Estimate(1.0, 1.0, 1.0)
    assert (ddp.sent, lazy.sent, lazy.loss) == (100, 50, 0.25)
    assert lazy.ratio == Estimate(2.0, 2.0, 2.0)
    assert lazy.least == dense(4)(SHAPES)
    assert from_json(json.loads(json.dumps(found.as_json()))) == found


def test_counted_messages_are_what_must_be_sent() -> None:
    seconds = {"alone": [1.0, 1.0], "csc-1": [2.0, 2.0]}
    alone, csc = trained([0, 0]), {**trained([150, 250]), "messages": [100, 200]}
    found = wire([rank(seconds, [0.0, 0.0], **{"alone": alone, "csc-1": csc})] * 4, 100, 2, 4)
    assert (found.rows[1].sent, found.rows[1].least) == (200, 150)


def test_a_message_has_what_was_chosen() -> None:
    device, ranges = torch.device("cpu"), (range(70), range(80, 83), range(96, 126))
    bucket = Bucket(0, "b", 4 * 126, torch.float32, device, ("a", "b", "c"), 0, ranges)
    chosen = Sent(bucket, (None,) * 3, Part(20, torch.tensor([0, 6], dtype=torch.int32), {1}))
    whole = Sent(bucket, (None,) * 3, None)
    for travels, width in ((torch.bfloat16, 2), (None, 4)):
        # chunks of 20 and of 6 elements, 3 dense ones, 7 norms; a bucket that went whole; 10 elements more
        expected = width * (20 + 6 + 3) + 4 * 7 + 4 * 126 + 4 * 10
        assert message_bytes([chosen, whole], travels, 2 * 103 + 10) == expected


def test_too_many_disturbed_repetitions_all_count() -> None:
    one = rank({"alone": [1.0, 2.0, 6.0]}, [0.5, 0.0, 0.5], alone=trained([1, 1, 1]))
    found = wire([one], 100, 2, 4)
    assert (found.disturbed, found.counted, found.rows[0].step.value) == (2, 3, 2.0)
    assert "upper bounds" in report.disturbed(found)


def test_ranks_that_differ_are_an_error() -> None:
    alone, seconds = trained([0]), {"alone": [1.0], "lazy": [1.0]}
    ranks = [rank(seconds, [0.0], alone=alone, lazy=trained([1], weights=own)) for own in ("one", "other")]
    with pytest.raises(RuntimeError, match="lazy allreduce: ranks have different weights"):
        wire(ranks, 100, 2, 4)


def stored() -> dict[str, Any]:
    rows = (
        Row(GRADIENTFLOW[ALONE].name, Estimate(0.2), None, None, 0.0, 0.0, None),
        Row(GRADIENTFLOW["ddp"].name, Estimate(2.0, 1.9, 2.1), Estimate(1.8), Estimate(1.0), 1.5e7, 1e7, 0.5),
        Row(
            GRADIENTFLOW["lazy"].name,
            Estimate(1.0, 0.9, 1.1),
            Estimate(0.8, 0.7, 0.9),
            Estimate(2.0),
            1e7,
            1e7,
            0.5,
        ),
    )
    wires = [Wire(mbit, 40, 36, 0, rows).as_json() for mbit in (1000, 100)]
    return {"day": "2026-01-01", "machine": MACHINE, "dense_steps": {"CSC": 20}, "wires": wires}


def test_the_picture_names_the_fastest(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert report.fastest(report.wires(stored())[0].rows) == "fastest: lazy allreduce, 1 s"
    picture.draw(report.paint, stored(), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
