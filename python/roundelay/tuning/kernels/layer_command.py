"""``roundelay tune --layers``: measures this machine's kernels, and adds their times to the tuning file."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from roundelay import __version__
from roundelay.run.errors import UsageError
from roundelay.tuning import file as tuning_file
from roundelay.tuning.file import Cluster, Tuning
from roundelay.tuning.kernels import sampling, timing, training
from roundelay.tuning.kernels.times import Errors, KernelTimes, LayerTimes
from roundelay.tuning.kernels.timing import Sample

# Each kind's share of the time. Convolutions have the most features, and the longest times.
_SHARES = {
    "convolution": 0.45,
    "matrix product": 0.3,
    "normalisation": 0.1,
    "element-wise": 0.11,
    "update": 0.04,
}
COLUMNS = ("kernel", "direction", "shapes taught, tested", "roofline's error", "network's error", "used")
_SEED = 0
_NOWHERE = Cluster(1, 1, "none", ())  # the cluster of a file that has layers alone


def check() -> None:
    """Raises UsageError if scikit-learn is missing, before anything is measured."""
    try:
        import sklearn.neural_network  # noqa: F401
    except ImportError:
        raise UsageError("--layers needs scikit-learn: pip install 'roundelay[plan]'") from None


def before(path: Path) -> Tuning | None:
    """Returns the content of an old file, which stays in it; None without a file. Raises TuningFileError."""
    return tuning_file.load(path) if path.exists() else None


def run(seconds: float, console: Console) -> LayerTimes:
    """Measures for `seconds` seconds, and learns."""
    on = timing.device()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("measuring kernels", total=seconds)

        def progress(passed: float, what: str) -> None:
            bar.update(task, completed=passed, description=what)

        samples = measure(seconds, on, progress)
        bar.update(task, completed=seconds, description="learning")
        kernels = [model for kind, own in samples.items() for model in training.learn(kind, own)]
    date = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return LayerTimes(date, timing.name_of(on), torch.get_num_threads(), tuple(kernels))


def measure(
    seconds: float, on: torch.device, progress: Callable[[float, str], None]
) -> dict[str, list[Sample]]:
    """Measures shapes of all kinds in turn, so that a slow minute of the machine meets all of them.

    After that it goes on with the kinds that have fewer shapes than a model needs.
    """
    limits = timing.limits(on)
    waiting = {kind: sampling.shapes(kind, _SEED, limits) for kind in _SHARES}
    found: dict[str, list[Sample]] = {kind: [] for kind in _SHARES}
    spent = dict.fromkeys(_SHARES, 0.0)
    begin = now = time.monotonic()
    while now - begin < seconds or min(map(len, found.values())) < training.FEWEST:
        late = now - begin >= seconds
        kind = min(found, key=lambda one: len(found[one]) if late else spent[one] / _SHARES[one])
        found[kind].append(timing.measure(next(waiting[kind]), on))
        before_it, now = now, time.monotonic()
        spent[kind] += now - before_it
        progress(now - begin, f"{sum(map(len, found.values()))} shapes, {kind}")
    return found


def add(layers: LayerTimes, tuning: Tuning | None) -> Tuning:
    """Returns the file's content with these layers."""
    if tuning is not None:
        return dataclasses.replace(tuning, layers=layers)
    return Tuning(layers.date, __version__, _NOWHERE, (), (), (), layers)


def rows(kernels: Iterable[KernelTimes]) -> list[list[str]]:
    """Makes a row of COLUMNS for each model. Its errors are the median and the 90th percentile."""

    def text(errors: Errors) -> str:
        return f"{errors.median:.0%}, {errors.ninetieth:.0%}"

    return [
        [
            one.kind,
            one.direction,
            f"{one.learned_from}, {one.tested_on}",
            text(one.roofline_errors),
            text(one.network_errors),
            "network" if one.network else "roofline",
        ]
        for one in kernels
    ]


def show(layers: LayerTimes, console: Console) -> None:
    """Prints the errors of both models of each kernel."""
    table = Table(*COLUMNS)
    for row in rows(layers.kernels):
        table.add_row(*row)
    console.print(table)
    console.print(f"measured on {layers.device} with {layers.threads} threads", highlight=False)
