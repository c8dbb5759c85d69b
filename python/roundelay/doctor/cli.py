"""The command `roundelay doctor`: runs the checks and shows them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from roundelay.doctor.check import Check, State
from roundelay.doctor.installation import check_core, examine
from roundelay.doctor.two_ranks import probe

_PIPED_WIDTH = 160


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 if something is broken."""
    parser = argparse.ArgumentParser(
        prog="roundelay doctor", description="Checks this installation.", allow_abbrev=False
    )
    parser.add_argument(
        "--env", action="store_true", help="show each knob, its value and where that comes from, and stop"
    )
    # The launch check's ranks run this.
    parser.add_argument("--probe", metavar="FILE", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.probe is not None:
        Path(given.probe).write_text(json.dumps(probe()))
        return 0
    console = Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH)
    with Console(stderr=True).status("looking at Python") as status:  # shown on a terminal only
        checks = check_core() if given.env else list(examine(os.environ, status.update))
    if given.env and all(check.state is State.OK for check in checks):
        from roundelay.doctor import environment

        return environment.show(console)
    show(checks, console)
    return 1 if any(check.state is State.BROKEN for check in checks) else 0


def show(checks: Sequence[Check], console: Console) -> None:
    """Prints the table, then the cures."""
    table = Table(title="roundelay doctor", title_justify="left")
    for heading in ("what", "state", "found"):
        table.add_column(heading, overflow="fold")
    styles = {State.OK: "green", State.OFF: "yellow", State.BROKEN: "bold red"}
    for check in checks:
        table.add_row(check.name, f"[{styles[check.state]}]{check.state.value}[/]", escaped(check.found))
    console.print(table)
    broken = [check for check in checks if check.state is State.BROKEN]
    for check in broken:
        console.print(f"[bold red]{check.name}[/] is broken. Cure: {escaped(check.cure)}", soft_wrap=True)
    if not broken:
        console.print("All is well.")


def escaped(text: str) -> str:
    """Returns the text with brackets that rich does not read as markup."""
    return text.replace("[", "\\[")


if __name__ == "__main__":
    sys.exit(main())
