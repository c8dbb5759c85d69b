"""The tables of benchmarks.layers, and that its models are the planner's."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from benchmarks import layers
from benchmarks.report.page import read
from roundelay.plan import shapes
from roundelay.tuning.kernels.times import Errors, KernelTimes, LayerTimes, NetLayer, Roofline


def stored() -> tuple[LayerTimes, dict[str, Any]]:
    """What was measured, as it is stored: without the networks' weights."""
    found = read(layers.STORED)
    kernels = tuple(
        KernelTimes(
            one["kind"],
            one["direction"],
            one["learned_from"],
            one["tested_on"],
            Roofline(**one["roofline"]),
            Errors(**one["roofline_errors"]),
            Errors(**one["network_errors"]),
            (),
            (NetLayer((), ()),) if one["networked"] else (),
        )
        for one in found["kernels"]
    )
    return LayerTimes("", found["device"], found["threads"], kernels), found


def test_the_page_has_errors_of_kernels_and_of_steps() -> None:
    assert layers.PART.filled(layers.document(*stored())) == layers.PART.page.read_text()


@pytest.mark.parametrize("name", layers._MODELS)
def test_a_measured_model_has_the_parameters_of_the_planners(name: str) -> None:
    make, _ = layers._MODELS[name]
    assert sum(parameter.numel() for parameter in make().parameters()) == shapes.KNOWN[name]().elements


def test_the_page_says_how_wrong_steps_are_and_networks_are_better() -> None:
    models = read(layers.STORED)["models"]
    page = " ".join(layers.PART.page.read_text().split())
    errors = {how: [abs(one[how] / one["measured"] - 1) for one in models] for how in ("network", "roofline")}
    mean = {how: statistics.mean(own) for how, own in errors.items()}
    assert mean["network"] < mean["roofline"]
    said = {
        how: f"{100 * mean[how]:.0f} % off, and {100 * max(own):.0f} % at most" for how, own in errors.items()
    }
    assert f"they are {said['network']}; rooflines are {said['roofline']}." in page
