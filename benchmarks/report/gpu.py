"""The checks of a machine with a GPU as a table, in the terminal and in docs/results/gpu.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks import show
from benchmarks.gpu.steps import STEPS
from benchmarks.report import page
from benchmarks.table.line import Line

STORED, PART = page.RESULTS / "gpu.json", page.Part(page.RESULTS / "gpu.md", "tools/gpu_check.sh --table")
COLUMNS = ("check", "result", "seconds", "measured")
VERDICTS = {True: "ok", False: "FAILED", None: "not run"}


def _lines(check: Mapping[str, Any]) -> list[Line]:
    figures = check["figures"]
    (step,) = (step for step in STEPS if step.name == check["name"])
    return [] if figures is None else step.lines(figures)


def _measured(check: Mapping[str, Any]) -> str:
    if check["ok"] is None:
        return str(check["message"]).partition("\n")[0]
    said = (f"{line.work}: {' '.join(filter(None, line.cells()[1:5]))}" for line in _lines(check))
    return "; ".join(said) or str(check["message"]).partition("\n")[0]


def rows(result: Mapping[str, Any]) -> list[list[str]]:
    """Make one row per check."""
    return [
        [check["name"], VERDICTS[check["ok"]], f"{check['seconds']:.0f}", _measured(check)]
        for check in result["checks"]
    ]


def markdown(result: Mapping[str, Any]) -> str:
    """Make the table, after a line about the machine."""
    where = (
        f"{result['gpu']}, driver {result['driver']}, torch {result['torch']}, CUDA {result['cuda']}, "
        f"NCCL {result['nccl']}, MPI {result['mpi']}, Python {result['python']}, "
        f"{result['date'].partition('T')[0]}."
    )
    return "\n".join([page.folded(where), "", *page.rows(COLUMNS, rows(result)), ""])


def write_page(result: Mapping[str, Any]) -> None:
    """Store the result, and write its table into docs/results/gpu.md. A dry run has nothing to store."""
    if result["dry_run"]:
        raise SystemExit("gpu_check: that was a dry run, which measures nothing")
    show.save(STORED, dict(result))
    PART.write(markdown(result))
