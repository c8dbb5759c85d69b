"""Draws steps and trainings. Imports matplotlib, so import this module only if a plot is wanted."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import show
from benchmarks.averaging.contenders import ALONE, CONTENDERS
from benchmarks.averaging.document import formula, samples, shown

_COLORS = ("#7a7f87", "#3b6fb6", "#57a773", "#7b4fa3", "#d1362f", "#d1862f", "#2a9d8f")
_QUIET, _TEXT = "#b9bdc4", "#30343b"


def _figure(columns: int, height: float) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(5.4 * columns, height), dpi=110, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(1, columns, squeeze=False)[0])
    for one in axes:
        for side in ("top", "right"):
            one.spines[side].set_visible(False)
    return figure, axes


def plot_steps(stored: Mapping[str, Any], path: Path) -> None:
    """Draw each contender's step, and a mark where the formula has it."""
    figure, axes = _figure(len(stored["rigs"]), 3.6)
    for one, rig in zip(axes, stored["rigs"], strict=True):
        measured = samples(rig)
        alone = measured.cost(ALONE).value
        names = list(rig["seconds"])
        values = [measured.cost(name).value * 1e3 for name in names]
        colors = [_QUIET if name == ALONE else _COLORS[1 + ("daso" in name)] for name in names]
        one.barh([CONTENDERS[name].name for name in names], values, color=colors)
        given = [formula(rig, name, alone) * 1e3 for name in names]
        one.plot(given, range(len(names)), "|", color=_TEXT, markersize=14, markeredgewidth=2)
        one.axvline(alone * 1e3, color=_TEXT, linewidth=0.7, linestyle=":")
        for place, value in enumerate(values):
            text = f" {show.seconds_text(value / 1e3)}"
            one.text(max(value, given[place]), place, text, va="center", fontsize=8)
        one.set_xlim(0, 1.2 * max(*values, *given))
        one.invert_yaxis()
        one.tick_params(labelsize=8)
        one.set_title(f"{rig['nodes']} nodes, {rig['mbit']} Mbit/s", fontsize=10)
        one.set_xlabel("ms a step (median); the mark is the formula's", fontsize=8)
    figure.savefig(path)


def plot_training(stored: Mapping[str, Any], path: Path) -> None:
    """Draw the test loss over the steps: the mean over the seeds, and a band from the least to the most."""
    figure, axes = _figure(len(stored["jobs"]), 4.0)
    for one, job in zip(axes, stored["jobs"], strict=True):
        for number, strategy in enumerate(dict.fromkeys(run["strategy"] for run in job["runs"])):
            color = _COLORS[number % len(_COLORS)]
            curves = [run["curve"] for run in job["runs"] if run["strategy"] == strategy]
            losses = [[point[1] for point in points] for points in zip(*curves, strict=True)]
            steps = [point[0] for point in curves[0]]
            one.plot(steps, list(map(statistics.mean, losses)), color=color, label=shown(strategy))
            one.fill_between(steps, list(map(min, losses)), list(map(max, losses)), color=color, alpha=0.15)
        one.set_yscale("log")
        one.set_title(f"{job['task']}, {job['nodes']} nodes of 2 ranks", fontsize=10)
        one.set_xlabel("steps", fontsize=8)
        one.set_ylabel("test loss", fontsize=8)
        one.grid(alpha=0.3)
        one.legend(frameon=False, fontsize=7)
    figure.savefig(path)
