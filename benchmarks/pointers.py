"""What a question where memory lies costs: the pointer cache beside a stand-in for the driver, without a GPU.

Build the target bench_pointers first. The stand-in answers after 0.2, 1 and 10 us, one thread at a time: only
the cache's times say something of this machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.report import page

PART = page.part(page.RESULTS / "device_mpi.md", "pointers")
COLUMNS = ("the stand-in takes", "threads", "ns a question to it", "ns a question to the cache")
_ROOT = Path(__file__).resolve().parent.parent
_PROGRAM = _ROOT / "build" / "dev" / "csrc" / "bench_pointers"


def measured() -> dict[str, Any]:
    """Run the program. Raises JobError if it is not built."""
    if not _PROGRAM.exists():
        raise launch.JobError(f"no {_PROGRAM.name}: cmake --build build/dev --target {_PROGRAM.name}")
    said = subprocess.run([_PROGRAM], check=True, capture_output=True, text=True).stdout
    machine = launch.machine(launch.find_launcher())
    return {"machine": machine, "cells": [json.loads(line) for line in said.splitlines()]}


def table(found: Mapping[str, Any]) -> list[list[str]]:
    """Make a row for each stand-in and number of threads."""
    return [
        [cell["driver"], threads, *(f"{times[who]:,.0f}" for who in ("driver_ns", "cache_ns"))]
        for cell in found["cells"]
        for threads, times in cell["threads"].items()
    ]


def page_text(found: Mapping[str, Any]) -> str:
    """Make the page's part."""
    where = f"{page.host(found['machine'])}; a thread waits so long for an answer, medians."
    return "\n".join([where, "", *page.rows(COLUMNS, table(found)), ""])


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pointers", description=__doc__)
    parser.add_argument("--docs", action="store_true", help="write the numbers and the table of the docs")
    arguments = parser.parse_args(argv)
    with launch.ending_in_one_line():
        found = measured()
    show.console().print(show.table(COLUMNS, table(found)))
    if arguments.docs:
        show.save(PART.page.with_suffix(".json"), found)
        PART.write(page_text(found))


if __name__ == "__main__":
    main()
