"""What the committed measurements say of the claims that are reproduced here: number and difference."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

NONE = "no number published"
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
DASO = "daso:global_skip=4,"


def _read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


def _span(values: list[float], form: str = "{:.1f}") -> str:
    return f"{form.format(min(values))} to {form.format(max(values))}"


def largest() -> tuple[str, str]:
    """Return the energy of MSTopK's choice, and its speed."""
    cells = _read("topk.json")["cells"]
    energy = min(cell["energy"]["mstopk"] for cell in cells)
    speed = [cell["ratios"]["torch.topk / mstopk"]["value"] for cell in cells]
    missed = f"{100 * max(0.0, 1 - energy):.3f} % of the energy"
    text = f"misses {missed} of the k largest, {_span(speed)} times as fast as torch.topk"
    return f"{text}, on a CPU; docs/results/topk.md", missed


def cache() -> tuple[str, str]:
    """Return the gain of later epochs."""
    seconds = {name: one["median"] for name, one in _read("data_cache.json")["seconds"].items()}
    gain = seconds["first, without a cache"] / seconds["later, with a cache"]
    memory = seconds["later, from memory"] / seconds["later, with a cache"]
    return (
        f"{gain:.1f} times as fast as an epoch without it; docs/results/data_cache.md",
        f"{memory - 1:+.0%} to plain memory",
    )


def norms() -> tuple[str, str]:
    """Return the gain of shared norms."""
    cells = [cell["seconds"] for job in _read("lars.json")["jobs"] for cell in job["cells"]]
    gains = {
        name: _span([cell[name]["median"] / cell["shared"]["median"] for cell in cells])
        for name in ("per layer", "multi-tensor")
    }
    return (
        f"{gains['per layer']} times as fast as norms layer by layer, {gains['multi-tensor']} times as "
        "fast as multi-tensor norms, on 2 and 4 ranks of 2 cores; docs/results/pto.md",
        NONE,
    )


def accuracy() -> tuple[str, str]:
    """Return the accuracies of DASO and of dense training."""
    texts, differences = [], []
    for job in _read("averaging_training.json")["jobs"]:
        means = [
            100
            * statistics.mean(run["curve"][-1][2] for run in job["runs"] if run["strategy"].startswith(kind))
            for kind in (DASO, "dense")
        ]
        texts.append(f"{job['task']} {means[0]:.1f} %, dense {means[1]:.1f} %")
        differences.append(f"{means[0] - means[1]:+.1f}")
    return f"{'; '.join(texts)}; docs/results/daso.md", f"{' and '.join(differences)} points"


def steps() -> tuple[str, str]:
    """Return the errors of predicted steps."""
    found = _read("plan.json")
    return (
        f"{len(found['tested'])} steps on emulated nodes: median error {100 * found['median_error']:.1f} %, "
        f"90th percentile {100 * found['error_90']:.1f} %; docs/results/plan.md",
        NONE,
    )


def kernels() -> tuple[str, str]:
    """Return the errors of learned times of kernels and of steps."""
    found = _read("layers.json")
    errors = {
        name: _span(
            [100 * one[f"{name}_errors"]["median"] for one in found["kernels"] if one["networked"]], "{:.0f}"
        )
        for name in ("network", "roofline")
    }
    means = {
        name: statistics.mean(abs(one[name] / one["measured"] - 1) for one in found["models"])
        for name in errors
    }
    return (
        f"median error of a kind of kernel {errors['network']} %, of rooflines alone {errors['roofline']} "
        f"%; of steps in the mean {100 * means['network']:.1f} and {100 * means['roofline']:.1f} %; "
        "docs/results/plan.md",
        NONE,
    )


def tree() -> tuple[str, str]:
    """Return how far the model of a tree is from measured steps on 4 ranks, by the page's table."""
    page = (RESULTS / "algorithms.md").read_text()
    lines = re.findall(r"^\| (\d+ \w*B) \|.*\| ([\d.]+) ms \| ([\d.]+) ms \|$", page, re.MULTILINE)
    (small, *first), *_, (large, *last) = lines
    errors = [f"{float(model) / float(measured) - 1:+.0%}" for measured, model in (first, last)]
    return (
        f"{first[1]} ms for {first[0]} at {small}, {last[1]} ms for {last[0]} at {large}, on 4 ranks of 2 "
        "cores; docs/results/algorithms.md",
        f"{errors[0]} and {errors[1]}",
    )
