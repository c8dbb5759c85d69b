"""`roundelay doctor --env`: every knob, its value and where that comes from, also where values are bad."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import torch  # noqa: F401  the core links to torch's libraries: they must be loaded first
from rich.console import Console
from rich.table import Table
from rich.text import Text

from roundelay import _core

_BAD_VARIABLE = re.compile(r'(.+?)(?:="| is set, but )', re.DOTALL)


@dataclass(frozen=True)
class Bad:
    """A variable that init() would refuse, its value, and what the core says of it."""

    variable: str
    value: str
    complaint: str


def read() -> tuple[_core.Config, list[Bad]]:
    """What init() would read here if the bad variables were not set, and those. Not thread-safe."""
    before = dict(os.environ)
    bad: list[Bad] = []
    try:
        while True:
            try:
                return _core.load_config(), bad
            except ValueError as error:  # names the first bad variable only
                found = _BAD_VARIABLE.match(str(error))
                if found is None or found[1] not in os.environ:
                    raise
                bad.append(Bad(found[1], os.environ.pop(found[1]), str(error)))
    finally:
        os.environ.clear()
        os.environ.update(before)


def show(console: Console) -> int:
    """Prints knobs, what has no effect and what is bad; the exit status: 1 if something is bad."""
    config, bad = read()
    table = Table(title="roundelay doctor --env", title_justify="left")
    for heading in ("variable", "value", "from", "meaning"):
        table.add_column(heading, overflow="fold")
    by_knob = {"ROUNDELAY_" + each.variable.partition("_")[2]: each for each in reversed(bad)}
    for variable, value, source, meaning in config.lines:
        wrong = by_knob.get(variable)
        style = "bold red" if wrong else "" if source == "default" else "green"
        cells = (wrong.value, f"{wrong.variable}: not valid") if wrong else (value, source)
        table.add_row(variable, *(Text(cell, style) for cell in cells), Text(meaning))
    console.print(table)
    for sentence in config.no_effect:
        console.print(Text(sentence, "yellow"), soft_wrap=True)
    for each in bad:
        console.print(Text(each.complaint, "bold red"), soft_wrap=True)
    if bad:
        console.print("init() fails with this environment.")
    return 1 if bad else 0
