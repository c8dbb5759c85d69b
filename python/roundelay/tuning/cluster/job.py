"""Runs the ranks of ``roundelay tune`` by roundelayrun, and reads the lines that rank 0 prints."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from roundelay.tuning.cluster.lines import MARK, Plan
from roundelay.tuning.file import Cluster, Level, Measurement

Progress = Callable[[int, int, str], None]  # cells done, all cells, a text on the last one


@dataclass(frozen=True)
class Found:
    """The result of the ranks' measurement."""

    cluster: Cluster
    measured: tuple[Measurement, ...]
    senders: Mapping[str, float]  # as groups.senders() returns them


class JobError(RuntimeError):
    """The ranks did not end well. `status` is the exit status of roundelayrun, which has told the cause."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the ranks ended with status {status}")
        self.status = status


def run(
    launcher_words: Sequence[str], plan: Plan, progress: Progress, pass_on: Callable[[str], None]
) -> Found:
    """Measures by ranks that roundelayrun starts. Raises JobError.

    launcher_words: the arguments of roundelayrun. pass_on: gets the ranks' other lines.
    """
    program = [sys.executable, "-m", "roundelay.tuning.cluster.worker", plan.to_word()]
    command = [sys.executable, "-m", "roundelay.run.cli", *launcher_words, "--", *program]
    result: dict[str, Any] | None = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as job:
        assert job.stdout is not None
        for line in job.stdout:
            _, mark, text = line.partition(MARK)
            if not mark:
                pass_on(line.rstrip("\n"))
                continue
            content = json.loads(text)
            if "done" in content:
                progress(content["done"], content["cells"], content["what"])
            else:
                result = content
    if job.returncode != 0 or result is None:
        raise JobError(job.returncode or 1)
    cluster = result["cluster"]
    levels = tuple(Level(**level) for level in cluster.pop("levels"))
    return Found(Cluster(**cluster, levels=levels), medians(result["measured"]), result["senders"])


def medians(cells: Sequence[dict[str, Any]]) -> tuple[Measurement, ...]:
    """Returns one measurement for each cell: the median of its rounds."""
    values = ("seconds", "cpu_seconds")
    keys = [field.name for field in fields(Measurement) if field.name not in values]
    rounds: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for cell in cells:
        rounds.setdefault(tuple(cell[key] for key in keys), []).append(cell)
    return tuple(
        Measurement(
            **dict(zip(keys, key, strict=True)),
            **{value: statistics.median(cell[value] for cell in own) for value in values},
        )
        for key, own in rounds.items()
    )
