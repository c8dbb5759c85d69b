"""`roundelay timeline FILE` sums up and draws a job's timeline."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from roundelay.timeline import analysis, report
from roundelay.timeline.events import Trace, read

_SHOWN = 3  # steps in the picture by default
_WIDTH = 120  # columns of tables that do not go to a terminal
_SUFFIXES = (".png", ".svg")


def _steps(text: str) -> slice:
    match = re.fullmatch(r"(\d*):(\d*)", text)
    if not match:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not like 10:13 (from step 10 up to, not including, 13)"
        )
    begin, end = (int(part) if part else None for part in match.groups())
    return slice(begin, end)


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in _SUFFIXES:
        raise argparse.ArgumentTypeError(f"'{text}' ends in neither .png nor .svg")
    return path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="roundelay timeline", description="Sums up and draws a job's timeline."
    )
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="the file of --timeline-filename or ROUNDELAY_TIMELINE"
    )
    parser.add_argument(
        "--output", metavar="PICTURE", type=_picture, help="a .png or .svg (default: FILE.png)"
    )
    parser.add_argument(
        "--steps",
        metavar="A:B",
        type=_steps,
        help=f"only these steps (default: all; for the picture {_SHOWN} from the middle)",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="show all parameters of techniques, as the core has them"
    )
    return parser


def _middle(count: int) -> range:
    first = max(0, (count - _SHOWN) // 2)
    return range(first, min(count, first + _SHOWN))


def _fail(text: str) -> int:
    print(f"roundelay timeline: {text}", file=sys.stderr)
    return 1


def _draw(trace: Trace, steps: list[analysis.Step], indices: range, path: Path) -> str | None:
    """Write the picture. Return the reason if it cannot be written."""
    try:
        from roundelay.timeline.picture import draw  # matplotlib: optional, slow to import
    except ImportError:
        return "no picture, matplotlib is missing: pip install matplotlib"
    try:
        draw(trace, steps, indices, path)
    except OSError as error:
        return f"cannot write '{path}': {error.strerror}"
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0, or 1 with one line on stderr (2: the arguments are wrong)."""
    arguments = _parser().parse_args(argv)
    try:
        trace = read(arguments.file)
    except OSError as error:
        return _fail(f"cannot read '{arguments.file}': {error.strerror}")
    except ValueError as error:
        return _fail(f"'{arguments.file}': {error}")
    steps = analysis.steps(trace)
    if not steps:
        return _fail(f"'{arguments.file}' has no spans: nothing was trained or communicated while it was on")
    indices = range(1 + max(s.index for s in steps))
    if arguments.steps is not None:
        chosen = indices[arguments.steps]
        if not chosen:
            return _fail(f"no such steps: the file has steps 0:{len(indices)}")
        steps = [s for s in steps if s.index in chosen]
        drawn = chosen
    else:
        drawn = _middle(len(indices))
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    report.print_report(trace, steps, console, arguments.verbose)
    path = arguments.output or arguments.file.with_name(arguments.file.name + ".png")
    problem = _draw(trace, steps, drawn, path)
    if problem is None:
        print(f"picture: {path}")
    elif arguments.output:
        return _fail(problem)
    else:
        print(problem, file=sys.stderr)
    return 0
