"""Prints on one rank of the job, so that a user sees each line once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import roundelay.torch as hvd


def say(*words: object) -> None:
    """Prints like ``print``, on one process of the job. Joins the job if ``run`` has not done so yet."""
    hvd.init()
    if hvd.rank() == 0:
        print(*words, flush=True)


@contextmanager
def progress_bar(wanted: bool, steps: int, done: int) -> Iterator[Callable[[], object]]:
    """Shows the steps on stderr of one process, if wanted; gives the function to call after each step."""
    if not wanted or hvd.rank() != 0:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = ("steps", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("steps", total=steps, completed=done)
        yield lambda: bar.advance(task)
