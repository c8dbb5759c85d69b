"""Draws measurements. Imports matplotlib: import this module only where a plot is wanted."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import show

_COLORS = {
    "roundelay": "#3b6fb6",
    "pool": "#7b4fa3",
    "gloo": "#d1862f",
    "mpi": "#57a773",
    "ddp": "#d1362f",
    "none": "#b9bdc4",
}


def _figure(rows: int, columns: int, height: float) -> tuple[Figure, list[list[Axes]]]:
    figure = Figure(figsize=(4.2 * columns, height * rows + 0.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharey="row")
    for one in axes.flat:
        for side in ("top", "right"):
            one.spines[side].set_visible(False)
    return figure, [list(row) for row in axes]


def plot_allreduce(found: dict[str, Any], path: Path) -> None:
    """Draw time over size for every number of ranks and type."""
    jobs = found["jobs"]
    dtypes = list(dict.fromkeys(cell["dtype"] for cell in jobs[0]["cells"]))
    figure, axes = _figure(len(jobs), len(dtypes), 3.0)
    for row, job in zip(axes, jobs, strict=True):
        for one, dtype in zip(row, dtypes, strict=True):
            cells = [cell for cell in job["cells"] if cell["dtype"] == dtype]
            for name in cells[0]["seconds"]:
                times = [cell["seconds"][name] for cell in cells]
                sizes = [cell["bytes"] for cell in cells]
                color = _COLORS[name]
                one.plot(sizes, [t["median"] for t in times], "o-", color=color, label=name, markersize=4)
                one.fill_between(
                    sizes, [t["low"] for t in times], [t["high"] for t in times], color=color, alpha=0.2
                )
            one.set_xscale("log", base=2)
            one.set_yscale("log")
            one.set_xticks(
                [c["bytes"] for c in cells], [show.size_text(c["bytes"]) for c in cells], fontsize=7
            )
            one.tick_params(axis="x", rotation=40)
            one.minorticks_off()
            one.set_title(f"{show.SHORT[dtype]}, {job['ranks']} ranks", fontsize=10)
            one.grid(alpha=0.3)
        row[0].set_ylabel("seconds (median, quartiles)")
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.suptitle("Allreduce: lower is better", fontsize=12)
    figure.savefig(path)


def plot_train_step(found: dict[str, Any], path: Path) -> None:
    """Draw the step without communication, and what each library adds to it."""
    jobs = found["jobs"]
    models = [cell["model"] for cell in jobs[0]["cells"]]
    figure, axes = _figure(len(jobs), len(models), 2.6)
    for row, job in zip(axes, jobs, strict=True):
        for one, cell in zip(row, job["cells"], strict=True):
            compute = cell["seconds"]["none"]["median"] * 1e3
            names = [name for name in cell["seconds"] if name != "none"]
            added = [max(0.0, cell["exposed"][name]["median"] * 1e3) for name in names]
            one.barh(names, [compute] * len(names), color=_COLORS["none"], label="without communication")
            one.barh(names, added, left=compute, color=[_COLORS[name] for name in names])
            for place, value in enumerate(added):
                one.text(compute + value, place, f" +{value:.3g} ms", va="center", fontsize=8)
            one.set_xlim(0, (compute + max(added)) * 1.25)
            one.invert_yaxis()
            one.set_title(f"{cell['model']}, {job['ranks']} ranks", fontsize=10)
            one.set_xlabel("ms a step (median)", fontsize=8)
    figure.suptitle("Training step: gray is the step without communication, the rest is exposed", fontsize=12)
    figure.savefig(path)


def plot_data_cache(found: dict[str, Any], path: Path) -> None:
    """Draw samples a second of each kind of epoch."""
    names = [name for name in found["seconds"] if "no transform" not in name]
    names.sort(key=lambda name: found["seconds"][name]["median"], reverse=True)
    figure, axes = _figure(2, 1, 1.9)
    speeds = [found["samples"] / found["seconds"][name]["median"] for name in names]
    colors = [_COLORS["roundelay" if "with a" in name else "none"] for name in names]
    (above,), (below,) = axes
    above.barh(names, speeds, color=colors)
    for place, value in enumerate(speeds):
        above.text(value, place, f" {value:.0f}", va="center", fontsize=8)
    above.set_xlim(0, 1.2 * max(speeds))
    above.set_xlabel("samples a second, all ranks (median epoch)", fontsize=8)
    memory = found["memory"]
    processes = found["ranks"] * (1 + found["workers"])
    sizes = {
        "kept": memory["kept"],
        f"in memory, by {processes} processes": memory["share"],
        "one copy for each rank": found["ranks"] * memory["kept"],
    }
    below.barh(
        list(sizes),
        [size / 2**20 for size in sizes.values()],
        color=[_COLORS["roundelay"]] * 2 + [_COLORS["none"]],
    )
    below.set_xlabel("MiB", fontsize=8)
    for one in (above, below):
        one.invert_yaxis()
        one.tick_params(labelsize=8)
    figure.suptitle(
        f"DataCache: a read from the source takes {show.seconds_text(found['delay'])}", fontsize=10
    )
    figure.savefig(path)


def plot_convergence(found: dict[str, Any], path: Path) -> None:
    """Draw the test loss over the steps: the mean over the seeds, and a band from the least to the most."""
    jobs = found["jobs"]
    tasks = list(dict.fromkeys((job["task"], job["rate"]) for job in jobs))
    ranks = list(dict.fromkeys(job["ranks"] for job in jobs))
    figure, axes = _figure(len(tasks), len(ranks), 3.0)
    colors = ("#7a7f87", "#3b6fb6", "#7b4fa3", "#d1362f", "#57a773", "#d1862f")
    strategies = list(dict.fromkeys(run["strategy"] for job in jobs for run in job["runs"]))
    for job in jobs:
        one = axes[tasks.index((job["task"], job["rate"]))][ranks.index(job["ranks"])]
        for strategy, color in zip(strategies, itertools.cycle(colors), strict=False):
            curves = [run["curve"] for run in job["runs"] if run["strategy"] == strategy]
            if not curves:
                continue
            points = [point[0] for point in curves[0]]
            losses = [[point[1] for point in points_at] for points_at in zip(*curves, strict=True)]
            one.plot(points, [statistics.mean(some) for some in losses], color=color, label=strategy)
            one.fill_between(
                points, [min(some) for some in losses], [max(some) for some in losses], color=color, alpha=0.2
            )
        one.set_yscale("log")
        seeds = len({run["seed"] for run in job["runs"]})
        rate = "" if job["rate"] == 1 else f" at {job['rate']:g}x the rate"
        one.set_title(f"{job['task']}{rate}, {job['ranks']} ranks, {seeds} seeds", fontsize=10)
        one.set_xlabel("steps", fontsize=8)
        one.grid(alpha=0.3)
    shown: dict[str, Artist] = {}
    for row in axes:
        row[0].set_ylabel("test loss")
        for one in row:
            handles, labels = one.get_legend_handles_labels()
            shown.update(zip(labels, handles, strict=True))
            one.set_visible(bool(labels))
    figure.legend(list(shown.values()), list(shown), loc="outside lower center", frameon=False, fontsize=5.5)
    figure.suptitle("Test loss, mean and range of the seeds", fontsize=12)
    figure.savefig(path)
