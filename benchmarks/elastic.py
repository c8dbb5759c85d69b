"""How long a change of the ranks takes: one is lost, and its replacement joins; and a whole node is lost.

The node is one of three, a rank each, in network namespaces: no packet comes from it any more. That needs
root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import launch, show
from benchmarks.report import page
from tests.rig import Rig

STORED, PART = page.RESULTS / "elastic.json", page.part(page.RESULTS / "elastic.md", "elastic")
_ROOT = Path(__file__).resolve().parents[1]
_MODELS = {"16,000 parameters": 16, "ResNet-50's size": 25_600}  # thousands of parameters
_NODES = 3  # of the job that loses one
_COLUMNS = [
    "model",
    "loss to the next step",
    "join to the next step",
    "until the other is ready",
    "a commit",
    "loss of a node to the next step",
]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5, help="jobs of each size (default: 5)")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--docs", action="store_true", help="store JSON and table in docs/results")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def _command(ranks: int, *flags: str) -> list[str]:
    command = [sys.executable, "-m", "roundelay.run.cli", "-np", str(ranks), "--min-np", str(ranks - 1)]
    return [*command, *flags, sys.executable, "-m", "benchmarks.workers.elastic"]


def _environment(*folders: Path) -> dict[str, str]:
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": f"{_ROOT / 'python'}:{_ROOT}"}


def _measured(thousands: int, ranks: int) -> dict[str, Any]:
    """Run a job that loses a rank and gets another; return the seconds that its first rank has seen."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found"
        command = [*_command(ranks, "--max-np", str(ranks)), str(found), str(thousands), "rank"]
        subprocess.run(command, env=_environment(), check=True, stderr=subprocess.DEVNULL)
        measured: dict[str, Any] = json.loads(found.read_text())
        return measured


def _without_a_node(thousands: int) -> float:
    """Run a job of three nodes that loses the last; return the seconds to the others' next step."""
    with tempfile.TemporaryDirectory() as folder, Rig(_NODES, mbit=None) as rig:
        found = Path(folder) / "found"
        hosts = ",".join(f"{rig.host(node)}:1" for node in range(_NODES))
        command = [*rig.on(0), *_command(_NODES, "-H", hosts), str(found), str(thousands), "node"]
        with subprocess.Popen(command, env=_environment(rig.commands), stderr=subprocess.DEVNULL) as job:
            while not found.with_suffix(".begun").exists() and job.poll() is None:
                time.sleep(0.01)
            rig.lose(_NODES - 1)
            if job.wait() != 0:
                raise launch.JobError("the job without a node has failed", job.returncode)
        seconds: float = json.loads(found.read_text())["lost"]
        return seconds


def rows(cells: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Make the table's rows: medians over the jobs."""
    keys = ("lost", "joined", "ready", "commit", "node")
    return [
        [cell["model"], *(show.seconds_text(median(job[key] for job in cell["jobs"])) for key in keys)]
        for cell in cells
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    given = _parser().parse_args(argv)
    launch.require_rig("three nodes")
    cells = [
        {
            "model": name,
            "jobs": [
                {**_measured(thousands, given.ranks), "node": _without_a_node(thousands)}
                for _ in range(given.repetitions)
            ],
        }
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
