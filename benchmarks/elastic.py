"""How long a change of the ranks takes: one is lost, and its replacement joins."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import launch, show
from benchmarks.report import page

STORED, PART = page.RESULTS / "elastic.json", page.part(page.RESULTS / "elastic.md", "elastic")
_ROOT = Path(__file__).resolve().parents[1]
_MODELS = {"16,000 parameters": 16, "ResNet-50's size": 25_600}  # thousands of parameters
_COLUMNS = ["model", "loss to the next step", "join to the next step", "until the other is ready", "a commit"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5, help="jobs of each size (default: 5)")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--docs", action="store_true", help="store JSON and table in docs/results")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def _measured(thousands: int, ranks: int) -> dict[str, Any]:
    """Run a job that loses a rank and gets another; return the seconds that its first rank has seen."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found"
        command = [sys.executable, "-m", "roundelay.run.cli", "-np", str(ranks), "--min-np", str(ranks - 1)]
        command += ["--max-np", str(ranks), sys.executable, "-m", "benchmarks.workers.elastic"]
        environment = {**os.environ, "PYTHONPATH": f"{_ROOT / 'python'}:{_ROOT}"}
        subprocess.run(
            [*command, str(found), str(thousands)], env=environment, check=True, stderr=subprocess.DEVNULL
        )
        measured: dict[str, Any] = json.loads(found.read_text())
        return measured


def rows(cells: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Make the table's rows: medians over the jobs."""
    keys = ("lost", "joined", "ready", "commit")
    return [
        [cell["model"], *(show.seconds_text(median(job[key] for job in cell["jobs"])) for key in keys)]
        for cell in cells
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    given = _parser().parse_args(argv)
    cells = [
        {"model": name, "jobs": [_measured(thousands, given.ranks) for _ in range(given.repetitions)]}
        for name, thousands in _MODELS.items()
    ]
    show.console().print(show.table(_COLUMNS, rows(cells), texts=1))
    machine = launch.machine(launch.find_launcher())
    found: dict[str, Any] = {"machine": machine, "ranks": given.ranks, "cells": cells}
    show.save(STORED if given.docs else given.output / "elastic.json", found)
    if given.docs:
        head = f"{page.host(found['machine'])}, {given.ranks} ranks, medians of {given.repetitions} jobs."
        PART.write("\n".join([head, "", *page.rows(_COLUMNS, rows(cells)), ""]))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
