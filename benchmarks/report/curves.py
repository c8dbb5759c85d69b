"""Trainings of some seeds: rows with their ends, and curves of the test loss."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.report import page, picture

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CONVERGENCE_COLUMNS = (
    "task", "rate", "strategy", "ranks", "seeds", "test loss", "range", "accuracy", "range", "sent"
)  # fmt: skip
AVERAGING_COLUMNS = (
    "task", "strategy", "seeds", "test loss", "range", "accuracy", "range", "models sent a step"
)  # fmt: skip
_COLORS = (picture.GRAY, picture.BLUE, picture.PURPLE, picture.RED, picture.GREEN, picture.ORANGE)
_AVERAGING_COLORS = (
    *(picture.GRAY, picture.BLUE, picture.GREEN, picture.PURPLE, picture.RED, picture.ORANGE, picture.TEAL),
)
Job = Mapping[str, Any]


class Subject(NamedTuple):
    """The trainings of a page: those of strategies of one kind, beside dense ones; and their picture."""

    part: page.Part
    picture: Path
    kind: str


def _convergence(name: str, image: str, kind: str) -> Subject:
    return Subject(page.part(page.RESULTS / f"{name}.md", "convergence"), page.IMAGES / image, kind)


def _averaging(name: str, kind: str) -> Subject:
    place = page.part(page.RESULTS / f"{name}.md", "averaging.training")
    return Subject(place, page.IMAGES / f"{name}_training.png", kind)


CONVERGENCE = (
    _convergence("gradientflow", "convergence.png", "csc"),
    _convergence("topk", "convergence_topk.png", "topk"),
    _convergence("powersgd", "convergence_powersgd.png", "power_sgd"),
    _convergence("quantised", "convergence_quantised.png", "quantised"),
)
AVERAGING = (_averaging("daso", "daso"), _averaging("local_sgd", "local_sgd"))


def strategies(job: Job) -> list[str]:
    """Return the strategies of a job's trainings, each once."""
    return list(dict.fromkeys(run["strategy"] for run in job["runs"]))


def of_kind(job: Job, kind: str) -> dict[str, Any]:
    """Return a job with the dense trainings, and those of strategies of this kind."""
    chosen = [run for run in job["runs"] if run["strategy"].partition(":")[0] in ("dense", kind)]
    return {**job, "runs": chosen}


def _runs(job: Job, strategy: str) -> list[Mapping[str, Any]]:
    return [run for run in job["runs"] if run["strategy"] == strategy]


def _ends(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the mean and the range of the last test losses, and of the last accuracies."""
    columns = []
    for values in zip(*(run["curve"][-1][1:] for run in runs), strict=True):
        columns += [f"{statistics.mean(values):.4f}", f"{min(values):.4f} to {max(values):.4f}"]
    return columns


def _sent(runs: Sequence[Mapping[str, Any]]) -> float:
    mean: float = statistics.mean(run["sent"] for run in runs)
    return mean


def _curves(axes: Axes, job: Job, strategy: str, style: tuple[str, str, float]) -> None:
    """Draw the mean of the seeds' test losses, and a band from the least to the most.

    Args:
        axes: the panel.
        job: the job.
        strategy: the strategy of the trainings to draw.
        style: the color, the name in the legend, and how opaque the band is.

    """
    color, label, alpha = style
    curves = [run["curve"] for run in _runs(job, strategy)]
    if not curves:
        return
    steps = [point[0] for point in curves[0]]
    losses = [[point[1] for point in points] for points in zip(*curves, strict=True)]
    axes.plot(steps, list(map(statistics.mean, losses)), color=color, label=label)
    axes.fill_between(steps, list(map(min, losses)), list(map(max, losses)), color=color, alpha=alpha)


def _scales(axes: Axes, title: str) -> None:
    axes.set_yscale("log")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("steps", fontsize=8)
    axes.grid(alpha=0.3)


# -- benchmarks.convergence


def convergence_part(subject: Subject, found: Job) -> dict[str, Any]:
    """Return what the page shows of all results: the jobs that have strategies of its kind."""
    jobs = [
        of_kind(job, subject.kind)
        for job in found["jobs"]
        if any(strategy.partition(":")[0] == subject.kind for strategy in strategies(job))
    ]
    return {**found, "jobs": jobs}


def convergence_rows(job: Job) -> list[list[str]]:
    """Return the table's rows of one task and number of ranks."""
    made = []
    for strategy in strategies(job):
        runs = _runs(job, strategy)
        names = [job["task"], f"{job['rate']:g}x", strategy, str(job["ranks"]), str(len(runs))]
        made.append([*names, *_ends(runs), f"{_sent(runs):.1%}"])
    return made


def convergence_text(subject: Subject, part: Job) -> str:
    """Make what stands on the page: the picture and the table, of the page's part of the results."""
    if not part["jobs"]:
        return "No training is stored here yet.\n"
    ranks = " and ".join(str(count) for count in sorted({job["ranks"] for job in part["jobs"]}))
    title = f"![Test loss over the steps on {ranks} ranks, mean and range of the seeds]"
    made = page.rows(CONVERGENCE_COLUMNS, [row for job in part["jobs"] for row in convergence_rows(job)])
    where = subject.picture.relative_to(page.DOCS).as_posix()
    return "\n".join([f"{title}(../{where})", "", "Mean and range of the seeds.", "", *made, ""])


def convergence(found: Job) -> Figure:
    """Draw a panel for each task and number of ranks."""
    jobs = found["jobs"]
    tasks = list(dict.fromkeys((job["task"], job["rate"]) for job in jobs))
    ranks = list(dict.fromkeys(job["ranks"] for job in jobs))
    size = 4.2 * len(ranks), 3.0 * len(tasks) + 0.6
    figure, axes = picture.panels(len(tasks), len(ranks), size, 120, sharey=True)
    every = dict.fromkeys(strategy for job in jobs for strategy in strategies(job))
    for job in jobs:
        one = axes[tasks.index((job["task"], job["rate"]))][ranks.index(job["ranks"])]
        for strategy, color in zip(every, itertools.cycle(_COLORS), strict=False):
            _curves(one, job, strategy, (color, strategy, 0.2))
        seeds = len({run["seed"] for run in job["runs"]})
        rate = "" if job["rate"] == 1 else f" at {job['rate']:g}x the rate"
        _scales(one, f"{job['task']}{rate}, {job['ranks']} ranks, {seeds} seeds")
    shown: dict[str, Artist] = {}
    for row in axes:
        row[0].set_ylabel("test loss")
        for one in row:
            handles, labels = one.get_legend_handles_labels()
            shown.update(zip(labels, handles, strict=True))
            one.set_visible(bool(labels))
    figure.legend(list(shown.values()), list(shown), loc="outside lower center", frameon=False, fontsize=5.5)
    figure.suptitle("Test loss, mean and range of the seeds", fontsize=12)
    return figure


def render_convergence(found: Job) -> None:
    """Put the results into the pages: tables and pictures."""
    for subject in CONVERGENCE:
        part = convergence_part(subject, found)
        if part["jobs"]:
            picture.draw(convergence, part, subject.picture)
        subject.part.write(convergence_text(subject, part))


# -- benchmarks.averaging.training


def averaging_rows(jobs: Sequence[Job]) -> list[list[str]]:
    """Make the table's rows: one for each task and strategy."""
    return [
        [job["task"], _shown(strategy), str(len(runs)), *_ends(runs), f"{_sent(runs):.2f}"]
        for job in jobs
        for strategy in strategies(job)
        for runs in [_runs(job, strategy)]
    ]


def _shown(strategy: str) -> str:
    """Return a strategy's text without the parameters that all of them have."""
    kept = [one for one in strategy.split(",") if not one.startswith(("warmup", "cooldown", "total"))]
    return ",".join(kept)


def averaging_text(jobs: Sequence[Job]) -> str:
    """Make what stands on the page: the table of these jobs."""
    return "\n".join([*page.rows(AVERAGING_COLUMNS, averaging_rows(jobs)), ""])


def averaging(stored: Job) -> Figure:
    """Draw a panel for each task."""
    jobs = stored["jobs"]
    figure, [row] = picture.panels(1, len(jobs), (5.4 * len(jobs), 4.0), 110)
    for axes, job in zip(row, jobs, strict=True):
        for strategy, color in zip(strategies(job), itertools.cycle(_AVERAGING_COLORS), strict=False):
            _curves(axes, job, strategy, (color, _shown(strategy), 0.15))
        _scales(axes, f"{job['task']}, {job['nodes']} nodes of 2 ranks")
        axes.set_ylabel("test loss", fontsize=8)
        axes.legend(frameon=False, fontsize=7)
    return figure


def averaging_part(subject: Subject, stored: Job) -> dict[str, Any]:
    """Return what the page shows of all results."""
    return {**stored, "jobs": [of_kind(job, subject.kind) for job in stored["jobs"]]}


def render_averaging(stored: Job) -> None:
    """Put the results into the pages: tables and pictures."""
    for subject in AVERAGING:
        part = averaging_part(subject, stored)
        subject.part.write(averaging_text(part["jobs"]))
        picture.draw(averaging, part, subject.picture)
