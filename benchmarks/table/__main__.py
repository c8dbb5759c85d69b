"""Measure the speed table: every row beside its peers and its floor."""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.bare import FLAGS
from benchmarks.report import picture
from benchmarks.report import table as report
from benchmarks.table import goals
from benchmarks.table.line import COLUMNS
from benchmarks.table.result import Result
from benchmarks.table.rows import ROWS
from benchmarks.table.run import Run, with_mpirun

_JOB_LIMIT_S = 600.0
_QUICK_JOB_LIMIT_S = 120.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description=__doc__)
    parser.add_argument("--rows", choices=list(ROWS), nargs="+", default=list(ROWS), help="default: all")
    parser.add_argument("--quick", action="store_true", help="2 ranks, few repetitions: no numbers to keep")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of JSON, Markdown and plot")
    docs = parser.add_mutually_exclusive_group()
    docs.add_argument(
        "--docs", action="store_true", help="put these rows into docs/results/benchmarks.json, and render"
    )
    docs.add_argument("--render", action="store_true", help="measure nothing: pages and picture of that JSON")
    return parser


def _measure(name: str, run: Run, machine: Mapping[str, Any], quick: bool) -> dict[str, Any]:
    """Measure one row. A row that cannot be measured says why, and the others go on."""
    begin = time.monotonic()
    found = None
    try:
        found = ROWS[name].measure(run, quick)
        results = ROWS[name].results(found)
        print(f"measured {name} in {time.monotonic() - begin:.0f} s", flush=True)
    except launch.JobError as error:
        results = [Result(name, why=str(error))]
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return {"day": day, "machine": machine, "results": [one.as_json() for one in results], "found": found}


def _keep(measured: report.Rows) -> dict[str, Any]:
    """Replace the stored result of a row with the new one, without its single measurements."""
    short = {
        name: {key: value for key, value in row.items() if key != "found"} for name, row in measured.items()
    }
    all_ = {**report.read(), **short}
    kept = {name: all_[name] for name in ROWS if name in all_}
    show.save(report.STORED, {"rows": kept})
    return kept


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    if arguments.render:
        report.render(report.read())
        return
    mpirun = launch.find_launcher()
    machine = {**launch.machine(mpirun), "bare": " ".join(FLAGS)}
    run = with_mpirun(mpirun, _QUICK_JOB_LIMIT_S if arguments.quick else _JOB_LIMIT_S)
    rows = {name: _measure(name, run, machine, arguments.quick) for name in ROWS if name in arguments.rows}
    show.save(arguments.output / "table.json", {"rows": rows})
    peers, aims = report.peers_table(rows), report.goals_table(rows)
    (arguments.output / "table.md").write_text(f"{peers}\n{aims}")
    picture.draw(report.paint, rows, arguments.output / "table.png")
    _tell(report.results(rows))
    if arguments.docs:
        report.render(_keep(rows))


def _tell(results: Sequence[Result]) -> None:
    console = show.console()
    plain = [[cell.replace("**", "").replace("<br>", "\n") for cell in row] for row in report.cells(results)]
    console.print(show.table(report.columns(results), plain, texts=6))
    compared = goals.compared({result.work: result for result in results})
    console.print(show.table(COLUMNS, [line.cells() for line, _ in compared], texts=3))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
