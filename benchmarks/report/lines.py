"""Draws times over sizes, and predicted times over measured ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks import show
from benchmarks.report import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from benchmarks.plan.fit import Result

_LIBRARIES = {
    "roundelay": picture.BLUE,
    "pool": picture.PURPLE,
    "gloo": picture.ORANGE,
    "mpi": picture.GREEN,
}
_ALGORITHMS = {
    "recursive_doubling": picture.ORANGE,
    "halving_doubling": picture.BLUE,
    "ring": picture.OLIVE,
}
_STRATEGIES = (picture.BLUE, picture.GREEN, picture.RED, "#6a4c93", "#e09f3e")


def allreduce(found: dict[str, Any]) -> Figure:
    """Draw time over size for every number of ranks and type."""
    jobs = found["jobs"]
    dtypes = list(dict.fromkeys(cell["dtype"] for cell in jobs[0]["cells"]))
    size = 4.2 * len(dtypes), 3.0 * len(jobs) + 0.6
    figure, axes = picture.panels(len(jobs), len(dtypes), size, 120, sharey=True)
    for row, job in zip(axes, jobs, strict=True):
        for one, dtype in zip(row, dtypes, strict=True):
            _allreduces(one, [cell for cell in job["cells"] if cell["dtype"] == dtype])
            one.set_title(f"{show.SHORT[dtype]}, {job['ranks']} ranks", fontsize=10)
        row[0].set_ylabel("seconds (median, quartiles)")
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.suptitle("Allreduce: lower is better", fontsize=12)
    return figure


def _allreduces(axes: Axes, cells: list[dict[str, Any]]) -> None:
    sizes = [cell["bytes"] for cell in cells]
    for name in cells[0]["seconds"]:
        median, low, high = (
            [cell["seconds"][name][which] for cell in cells] for which in ("median", "low", "high")
        )
        axes.plot(sizes, median, "o-", color=_LIBRARIES[name], label=name, markersize=4)
        axes.fill_between(sizes, low, high, color=_LIBRARIES[name], alpha=0.2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [show.size_text(size) for size in sizes], fontsize=7)
    axes.tick_params(axis="x", rotation=40)
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def scale(found: dict[str, Any]) -> Figure:
    """Draw what a bucket costs the busiest rank over the number of ranks, with leaders and without."""
    figure, axes = picture.panels(1, 2, (8.0, 3.4), 120)
    sizes = sorted({cell["ranks"] for cell in found["cells"]})
    for axis, name, title in (
        (axes[0][0], "received", "messages that one rank receives"),
        (axes[0][1], "root_us", "microseconds of rank 0"),
    ):
        for leaders, color, label in ((1, picture.BLUE, "leaders"), (0, picture.ORANGE, "no leaders")):
            cells = [
                cell for cell in found["cells"] if cell["leaders"] == leaders and cell["what"] == "bucket"
            ]
            axis.plot([cell["ranks"] for cell in cells], [cell[name] for cell in cells], "o-", color=color)
            axis.annotate(label, (cells[-1]["ranks"], cells[-1][name]), color=color, ha="right", va="bottom")
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        axis.set_yscale("log")
        axis.set_xlabel("ranks")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    return figure


def allreduce_sizes(found: dict[str, Any]) -> Figure:
    """Draw each algorithm's times as points, and the model's as a line, over the size."""
    figure, axes = picture.panel((6.4, 4.0), 120, sides=())
    for algorithm, color in _ALGORITHMS.items():
        for times, style, label in (
            (found["model"][algorithm], "-", algorithm),
            (found["seconds"][algorithm], "o", None),
        ):
            sizes = sorted(times)
            milliseconds = [1e3 * times[size] for size in sizes]
            axes.plot(sizes, milliseconds, style, color=color, label=label, markersize=4, linewidth=1.2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("bytes of the sum")
    axes.set_ylabel("ms")
    title = f"{found['members']} members, {found['alpha_us']} us a message, {found['mbit']} Mbit/s"
    axes.set_title(f"{title}: measured (points), model (lines)", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    return figure


def plan(result: Result) -> Figure:
    """Draw predicted steps over measured ones, with the cells that were not fitted."""
    from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

    figure, axes = picture.panel((5.6, 5.2), 130, sides=())
    pairs = list(zip(result.tested, result.predictions, strict=True))
    for index, strategy in enumerate(dict.fromkeys(cell.strategy for cell in result.tested)):
        measured = [cell.seconds for cell, _ in pairs if cell.strategy == strategy]
        predicted = [value for cell, value in pairs if cell.strategy == strategy]
        color = _STRATEGIES[index % len(_STRATEGIES)]
        axes.plot(measured, predicted, "o", color=color, label=strategy, markersize=5)
    seconds = [cell.seconds for cell in result.tested]
    ends = [min(seconds) / 1.2, max(seconds) * 1.2]
    axes.plot(ends, ends, color=picture.TEXT, linewidth=1)
    axes.fill_between(ends, [0.8 * e for e in ends], [1.2 * e for e in ends], color="#aab4c3", alpha=0.3)
    axes.set(xscale="log", yscale="log", xlabel="measured step, s", ylabel="predicted step, s")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(ScalarFormatter())
    axes.legend(fontsize=8, frameon=False, title="band: 20 %", title_fontsize=8)
    axes.set_title(f"{len(result.tested)} cells that the fit has not seen", fontsize=10)
    return figure
