"""The tables of benchmarks.layers, and that its models are the planner's."""

from __future__ import annotations

import pytest

from benchmarks import layers
from roundelay.plan import shapes

ERRORS = {"median": 0.125, "ninetieth": 0.5}
FOUND = {
    "machine": {"cores": 2, "cpu": "chip"},
    "device": "cpu",
    "threads": 2,
    "minutes": 4.0,
    "kernels": [
        {
            "kind": "convolution",
            "direction": "forward",
            "learned_from": 80,
            "tested_on": 20,
            "roofline_errors": {"median": 0.4, "ninetieth": 0.9},
            "network_errors": ERRORS,
            "networked": True,
        }
    ],
    "models": [{"model": "alexnet", "batch": 8, "measured": 0.2, "network": 0.22, "roofline": 0.1}],
}


def test_the_page_has_errors_of_kernels_and_of_steps() -> None:
    lines = layers.document(FOUND).splitlines()
    assert lines[0] == "2 cores of an chip; device: cpu, threads: 2, 4 minutes."
    assert "| convolution | forward | 80, 20 | 40%, 90% | 12%, 50% | network |" in lines
    assert "| alexnet | 8 | 200 ms | 220 ms, +10% | 100 ms, -50% |" in lines


@pytest.mark.parametrize("name", layers._MODELS)
def test_a_measured_model_has_the_parameters_of_the_planners(name: str) -> None:
    make, _ = layers._MODELS[name]
    assert sum(parameter.numel() for parameter in make().parameters()) == shapes.KNOWN[name]().elements
