"""Reads a strategy's text, and writes one. Every error names the cause and what to write instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roundelay._internal.spelling.form import Written, shortest
from roundelay._internal.spelling.table import (
    CHOICES,
    STRATEGIES,
    Loss,
    Need,
    alias_of,
    other_names,
    parameters_of,
)

_CALL = re.compile(r"(?P<name>[A-Za-z_]\w*)\((?P<arguments>.*)\)", re.DOTALL)


@dataclass(frozen=True)
class Reading:
    """A text that was read."""

    written: Written  # without another name: that of the table, or one of a library
    values: Mapping[str, Any]  # those that it gives, of the strategy's types; of a library: texts

    @property
    def name(self) -> str:
        """The strategy's name, or a library's file and the name in it."""
        return self.written.name

    def value(self, key: str) -> Any:
        """Returns a parameter's value: that of the text, or the default."""
        return self.values.get(key, STRATEGIES[self.name].parameters[key].default)

    @property
    def text(self) -> str:
        """The one form of the text: what is not the default, and what texts always have."""
        return self.written.text if self.written.of_library else write(self.name, self.values)

    @property
    def loss(self) -> Loss | None:
        """What the strategy does to gradients; None: it is of a library, and nobody knows."""
        if self.written.of_library:
            return None
        declared = STRATEGIES[self.name].loss
        if declared is Loss.NONE and self.values.get("wire", "none") != "none":
            return Loss.ROUNDING
        return declared

    def check_complete(self) -> None:
        """Raises ValueError if a parameter is missing that has no default."""
        for key, parameter in STRATEGIES[self.name].parameters.items() if self.name in STRATEGIES else ():
            if parameter.need is Need.REQUIRED and key not in self.values:
                raise ValueError(f"strategy {self.name!r} needs {key}, {parameter.meaning}")


def read(text: str) -> Reading:
    """Reads the text of a strategy. A library that it names is not opened.

    ValueError: it has another form, names no strategy, or has a parameter that this does not have, or a wrong
    value. A parameter may still be missing.
    """
    call = _CALL.fullmatch(text.strip())
    if call is not None:
        raise ValueError(f"{text.strip()!r} is not of the form name:key=value: {_instead_of(call)}")
    return resolved(Written.read(text))


def resolved(written: Written) -> Reading:
    """Reads what a text says. ValueError: as read()."""
    if written.of_library:
        return Reading(written, dict(written.parameters))
    alias = alias_of(written.name)
    if alias is not None:
        written = Written.of(alias[0], {**alias[1], **dict(written.parameters)})
    entry = STRATEGIES.get(written.name)
    if entry is None:
        raise unknown(written.name)
    values = {}
    for key, value in written.parameters:
        if key not in entry.parameters:
            near = difflib.get_close_matches(key, entry.parameters, 1)
            hint = f": did you mean {near[0]}?" if near else ""
            keys = ", ".join(entry.parameters)
            raise ValueError(f"strategy {written.name!r} has no {key!r}, only {keys}{hint}")
        try:
            values[key] = entry.parameters[key].kind.read(key, value)
        except ValueError as error:
            raise ValueError(f"strategy {written.name!r}: {error}") from None
    return Reading(written, values)


def write(name: str, values: Mapping[str, Any]) -> str:
    """Returns the one text of a strategy with these values; what is missing has its default."""
    takes = parameters_of(name)
    given = {key: shortest(value) for key, value in values.items() if key not in takes}
    for key, parameter in takes.items():
        value = values.get(key, parameter.default)
        if value != parameter.default or (parameter.need is Need.SHOWN):
            given[key] = parameter.kind.write(value)
    return Written.of(name, given).text


def unknown(name: str) -> ValueError:
    """Returns the error for a name that no strategy has."""
    near = _near(name)
    hint = f": did you mean {near}?" if near else ""
    return ValueError(f"there is no strategy {name!r}{hint}; known are {', '.join(CHOICES)}")


def _near(name: str) -> str | None:
    """Returns the known name that is nearest to this one."""
    names = [*STRATEGIES, *other_names()]
    by_letters = {one.replace("_", ""): one for one in names}
    found = difflib.get_close_matches(name.lower().replace("_", "").replace("-", ""), by_letters, 1)
    return by_letters[found[0]] if found else None


def _instead_of(call: re.Match[str]) -> str:
    """Returns what to write in place of a call, such as ``CSC(keep=0.1)``."""
    name = _near(call["name"]) or call["name"]
    keys = list(parameters_of(name))
    given = filter(None, re.sub(r"[\s'\"]", "", call["arguments"]).split(","))
    values = ",".join(
        argument if "=" in argument else f"{keys[place] if place < len(keys) else 'key'}={argument}"
        for place, argument in enumerate(given)
    )
    return f"write {name}{':' if values else ''}{values} for {call[0]}"
