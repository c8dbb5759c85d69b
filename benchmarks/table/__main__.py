"""Measure the speed table: every row beside its peers, with what it shall reach."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.bare import FLAGS
from benchmarks.table.document import PICTURE, markdown, write_page
from benchmarks.table.line import COLUMNS, Line, missing
from benchmarks.table.rows import ROWS
from benchmarks.table.run import Run, with_mpirun

_JOB_LIMIT_S = 600.0
_QUICK_JOB_LIMIT_S = 120.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description=__doc__)
    parser.add_argument("--rows", choices=list(ROWS), nargs="+", default=list(ROWS), help="default: all")
    parser.add_argument("--quick", action="store_true", help="2 ranks, few repetitions: no numbers to keep")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of JSON, Markdown and plot")
    parser.add_argument("--docs", action="store_true", help="put table and plot into docs/benchmarks.md, too")
    return parser


def _row(name: str, run: Run, quick: bool) -> tuple[Any, list[Line]]:
    """Measure one row; one that cannot be measured is a line that says why, and the others go on."""
    begin = time.monotonic()
    try:
        found = ROWS[name].measure(run, quick)
    except launch.JobError as error:
        return None, [missing(name, str(error))]
    print(f"measured {name} in {time.monotonic() - begin:.0f} s", flush=True)
    return found, ROWS[name].lines(found)


def _plot(lines: Sequence[Line], path: Path) -> None:
    try:
        from benchmarks.table.plot import plot
    except ImportError:
        print("no plot, matplotlib is missing: pip install matplotlib")
        return
    plot(lines, path)
    print(f"wrote {path}")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    mpirun = launch.find_launcher()
    run = with_mpirun(mpirun, _QUICK_JOB_LIMIT_S if arguments.quick else _JOB_LIMIT_S)
    measured = {name: _row(name, run, arguments.quick) for name in ROWS if name in arguments.rows}
    lines = [line for _, own in measured.values() for line in own]
    show.console().print(show.table(COLUMNS, [line.cells() for line in lines], texts=3))

    machine = {**launch.machine(mpirun), "bare": " ".join(FLAGS)}
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    found = {
        "machine": machine,
        "day": day,
        "found": {name: one for name, (one, _) in measured.items()},
        "lines": [{**dataclasses.asdict(line), "met": line.met} for line in lines],
    }
    show.save(arguments.output / "table.json", found)
    table = markdown(lines, machine, day)
    (arguments.output / "table.md").write_text(table)
    _plot(lines, arguments.output / "table.png")
    if arguments.docs:
        write_page(table)
        _plot(lines, PICTURE)


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
