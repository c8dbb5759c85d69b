"""`roundelay trials LOG` sums up and draws the settings that jobs have tried (ROUNDELAY_AUTOTUNE_LOG)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from roundelay._internal.json_objects import WrongPartError
from roundelay.tuning.trials.log import Tried, read

_WIDTH = 120  # columns of a table that does not go to a terminal
_SUFFIXES = (".png", ".svg")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="roundelay trials", description="Sums up and draws what jobs have tried.", allow_abbrev=False
    )
    parser.add_argument(
        "file", metavar="LOG", type=Path, help="the file of --autotune-log-file or ROUNDELAY_AUTOTUNE_LOG"
    )
    parser.add_argument("--output", metavar="PICTURE", type=Path, help="draw it: a .png or .svg")
    return parser


def _table(search: Sequence[Tried]) -> Table:
    title = f"{search[0].optimizer}, {search[0].date}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("setting", "buckets", "predicted", "step", "fastest to slowest", ""):
        table.add_column(column, justify="left" if column in ("setting", "") else "right")
    for one in search:
        predicted = "" if one.predicted_ms is None else f"{one.predicted_ms:.1f} ms"
        spread = f"{one.fastest_ms:.1f} to {one.slowest_ms:.1f} ms"
        kept = "kept" if one.kept else ""
        table.add_row(one.name, str(one.buckets), predicted, f"{one.step_ms:.1f} ms", spread, kept)
    return table


def _draw(searches: Sequence[Sequence[Tried]], path: Path) -> str | None:
    """Write the picture. Return the reason if it cannot be written."""
    if path.suffix.lower() not in _SUFFIXES:
        return f"'{path}' ends in neither .png nor .svg"
    try:
        from roundelay.tuning.trials.picture import draw  # matplotlib: optional, slow to import
    except ImportError:
        return "no picture, matplotlib is missing: pip install matplotlib"
    try:
        draw(searches, path)
    except OSError as error:
        return f"cannot write '{path}': {error.strerror}"
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Return 0, or 2 after one line on stderr."""
    given = _parser().parse_args(argv)
    reason = None
    try:
        searches = read(given.file)
    except OSError as error:
        reason = f"cannot read '{given.file}': {error.strerror}"
    except (WrongPartError, UnicodeDecodeError) as error:
        reason = f"'{given.file}' is no log of trials: {error}"
    else:
        console = Console()
        if not console.is_terminal:
            console = Console(width=_WIDTH)
        for search in searches:
            console.print(_table(search))
        if given.output is not None:
            reason = _draw(searches, given.output)
    if reason is not None:
        print(f"roundelay trials: {reason}", file=sys.stderr)
        return 2
    return 0
