"""What a bucket costs the busiest rank of a large job, by the real classes of all ranks in one process.

Messages are counted. The time is that of rank 0's negotiation alone, without sockets.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.report import lines, page, picture

_ROOT = Path(__file__).resolve().parent.parent
_BUILD = _ROOT / "build" / "dev"
_PROGRAM = "test_sim"
_COLUMNS = [
    "ranks",
    "what",
    "leaders",
    "hops to rank 0",
    "most received by one rank",
    "most sent",
    "bytes of both",
    "rank 0's time",
    "rank 0's heap",
]
_NAMES = {"bucket": "a bucket", "used": "an agreement"}
# Of a bucket with leaders: messages that one rank receives or sends, microseconds, bytes.
_GOALS = {"received": 17.0, "sent": 17.0, "root_us": 50.0, "root_heap": float(64 << 20)}
STORED = page.RESULTS / "scale.json"
PART = page.part(page.DOCS / "scale.md", "scale")
PICTURE = page.IMAGES / "scale.png"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of JSON and picture")
    parser.add_argument("--docs", action="store_true", help="store JSON, table and picture in docs")
    return parser


def read(output: str) -> list[dict[str, Any]]:
    """Read the lines of the program."""
    cells: list[dict[str, Any]] = []
    for line in output.splitlines():
        if not line.startswith("scale "):
            continue
        named = dict(field.split("=") for field in line.split()[1:])
        cells.append({key: value if key == "what" else float(value) for key, value in named.items()})
    return cells


def _run() -> list[dict[str, Any]]:
    build = ["cmake", "--build", str(_BUILD), "--target", _PROGRAM, "--", "--quiet"]
    for command in (build, [str(_BUILD / "tests" / "cpp" / _PROGRAM), "[scale]"]):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            said = (ended.stderr.strip() or ended.stdout.strip() or "no reason given").splitlines()[-1]
            raise launch.JobError(f"{command[0]}: {said}")
    return read(ended.stdout)


def rows(cells: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Make the table's rows."""
    return [
        [
            f"{cell['ranks']:.0f}",
            _NAMES[cell["what"]],
            "yes" if cell["leaders"] else "no",
            *(f"{cell[name]:.0f}" for name in ("depth", "received", "sent", "bytes")),
            show.seconds_text(cell["root_us"] * 1e-6),
            f"{cell['root_heap'] / (1 << 20):.2f} MiB",
        ]
        for cell in sorted(cells, key=lambda cell: (cell["what"], cell["ranks"], not cell["leaders"]))
    ]


def goals(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Say which goals are missed with leaders."""
    missed = [
        f"- {cell['ranks']:.0f} ranks, {_NAMES[cell['what']]}, {name}: {cell[name]:g} (goal: {most:g})"
        for cell in cells
        for name, most in _GOALS.items()
        if cell["leaders"] and cell["what"] == "bucket" and cell[name] > most
    ]
    return ["Goals that are missed:", *missed] if missed else ["All goals are met."]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    given = _parser().parse_args(argv)
    cells = _run()
    show.console().print(show.table(_COLUMNS, rows(cells), texts=3))
    for line in goals(cells):
        print(line)
    found: dict[str, Any] = {"machine": launch.machine(launch.find_launcher()), "cells": cells}
    path = STORED if given.docs else given.output / "scale.json"
    show.save(path, found)
    picture.draw(lines.scale, found, PICTURE if given.docs else path.with_suffix(".png"))
    if given.docs:
        head = f"{page.host(found['machine'])}, 8 ranks on a node, fan-out 8."
        PART.write("\n".join([head, "", *page.rows(_COLUMNS, rows(cells)), "", *goals(cells), ""]))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
