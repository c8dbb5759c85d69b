"""The trust ratios of a step, shared by the ranks, beside those that each rank computes alone."""

from __future__ import annotations

from typing import Any

from benchmarks.shapes import NAMES, SHAPES
from benchmarks.table.result import Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

LAYERWISE, MULTI_TENSOR = "layer by layer", "multi-tensor norm"
_PEERS = {"per layer": LAYERWISE, "multi-tensor": MULTI_TENSOR}


def measure(run: Run, quick: bool) -> list[dict[str, Any]]:
    """Run a job of 2 ranks and one of 4."""
    spec = {
        "models": ["resnet50"] if quick else list(SHAPES),
        "calls": 1 if quick else 5,
        "repetitions": 2 if quick else 15,
    }
    return [{"ranks": ranks, **run("lars", ranks, spec)[0]} for ranks in ((2,) if quick else (2, 4))]


def work(model: str, ranks: int) -> str:
    """Name the ratios of one model."""
    return f"LARS: trust ratios of {NAMES[model]}, {ranks} ranks"


def results(found: list[dict[str, Any]]) -> list[Result]:
    """Make one result for each number of ranks and model."""
    return [
        compare(
            work(cell["model"], job["ranks"]),
            Samples(cell["seconds"], cell["others"]),
            _PEERS,
            own="shared",
            note=f"{cell['layers']} layers",
        )
        for job in found
        for cell in job["cells"]
    ]
