"""The tables of benchmarks.layers, and that its models are the planner's."""

from __future__ import annotations

import json
import statistics

import pytest

from benchmarks import layers
from roundelay.plan import shapes
from roundelay.tuning.kernels.times import Errors, KernelTimes, LayerTimes, Roofline

FOUND = {
    "machine": {"cores": 2, "cpu": "chip"},
    "minutes": 4.0,
    "models": [{"model": "alexnet", "batch": 8, "measured": 0.2, "network": 0.22, "roofline": 0.1}],
}
ROOFLINE = KernelTimes(
    "convolution", "forward", 80, 20, Roofline(0.0, 1.0, 1.0), Errors(0.4, 0.9), Errors(0.5, 0.5), (), ()
)
LAYERS = LayerTimes("2026-01-02T03:04:05Z", "cpu", 2, (ROOFLINE,))


def test_the_page_has_errors_of_kernels_and_of_steps() -> None:
    lines = layers.document(LAYERS, FOUND).splitlines()
    assert lines[0] == "2 cores of an chip; device: cpu, threads: 2, 4 minutes."
    assert "| convolution | forward | 80, 20 | 40%, 90% | 50%, 50% | roofline |" in lines
    assert "| alexnet | 8 | 200 ms | 220 ms, +10% | 100 ms, -50% |" in lines


@pytest.mark.parametrize("name", layers._MODELS)
def test_a_measured_model_has_the_parameters_of_the_planners(name: str) -> None:
    make, _ = layers._MODELS[name]
    assert sum(parameter.numel() for parameter in make().parameters()) == shapes.KNOWN[name]().elements


def test_the_page_says_how_wrong_steps_are_and_networks_are_better() -> None:
    models = json.loads(layers.STORED.read_text())["models"]
    page = " ".join(layers.PART.page.read_text().split())
    errors = {how: [abs(one[how] / one["measured"] - 1) for one in models] for how in ("network", "roofline")}
    mean = {how: statistics.mean(own) for how, own in errors.items()}
    assert mean["network"] < mean["roofline"]
    said = {
        how: f"{100 * mean[how]:.0f} % off, and {100 * max(own):.0f} % at most" for how, own in errors.items()
    }
    assert f"they are {said['network']}; rooflines are {said['roofline']}." in page
