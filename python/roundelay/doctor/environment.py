"""`roundelay doctor --env` shows every knob, its value and its source, and every bad variable."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from roundelay import _core
from roundelay.torch import strategies


@dataclass(frozen=True)
class BadVariable:
    """A variable that init() refuses, its value, the allowed values, and the complaint."""

    variable: str
    value: str
    allowed: str
    complaint: str


def read() -> tuple[_core.Config, list[BadVariable]]:
    """Returns what init() would read here if the bad variables were not set, and those."""
    config = _core.read_config()
    bad = [BadVariable(*each) for each in config.bad]
    try:
        if config.strategy:
            strategies.parse(config.strategy)
    except ValueError as error:
        name, value = "ROUNDELAY_STRATEGY", config.strategy
        complaint = f'{name}="{value}" is not valid: {error}'
        bad.append(BadVariable(name, value, ", ".join(strategies.known()), complaint))
    return config, bad


def show(console: Console) -> int:
    """Prints knobs, variables without effect and bad variables. Returns the exit status: 1 if any is bad."""
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
