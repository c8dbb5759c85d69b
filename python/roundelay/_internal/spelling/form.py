"""The form of a strategy's text: ``name:key=value,key=value``, with a library's file before it or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

Value = bool | int | float | str | tuple[str, ...] | list[str]
_RESERVED = ":,="


def cut(text: str, mark: str) -> list[str]:
    """Cuts a text at each mark that lies in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def cut_list(text: str) -> list[str]:
    """Cuts a list of strategies at the commas that begin a new one: ``csc:keep=0.1,wire=bf16,dense``."""
    found: list[str] = []
    for part in filter(None, map(str.strip, cut(text, ","))):
        if found and "=" in part.partition(":")[0]:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def shortest(value: Value) -> str:
    """Returns a value's form in texts."""
    if isinstance(value, tuple | list):
        return "+".join(value)
    if isinstance(value, bool):
        return str(int(value))
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Written:
    """A text in its parts. The name of a library's technique has the library's file before it."""

    name: str
    parameters: tuple[tuple[str, str], ...] = ()  # pairs of key and value, in the order of keys

    @classmethod
    def of(cls, name: str, parameters: Mapping[str, Value]) -> Written:
        """ValueError if the name or a value cannot be written."""
        given = tuple(sorted((key, shortest(value)) for key, value in parameters.items()))
        library = _library_of(name)
        names = (library, name[len(library) + 1 :]) if library else (name,)
        wrong = next((one for one in (*names, *dict(given)) if not _is_word(one)), None)
        if wrong is None:
            wrong = next((value for _, value in given if not (_is_word(value) or is_list(value))), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r} is no name or value: it is empty or has one of {_RESERVED}")
        return cls(name, given)

    @classmethod
    def read(cls, text: str) -> Written:
        """Reads ``name`` or ``name:key=value,key=value``, or either after ``library.so:``.

        ValueError for anything else.
        """
        text = text.strip()
        library = _library_of(text)
        name, colon, rest = (text[len(library) + 1 :] if library else text).partition(":")
        pairs = [pair.partition("=") for pair in cut(rest, ",")] if colon else []
        odd = next(("".join(pair) for pair in pairs if not pair[0] or not pair[2]), None)
        if not name or odd is not None:
            form = "library.so:name:key=value" if library else "name:key=value,key=value"
            which = f": {odd!r} is no key=value" if odd else ""
            raise ValueError(f"{text!r} is not of the form {form}{which}")
        keys = [key for key, _, _ in pairs]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f"{text!r} has {twice!r} more than once")
        return cls.of(f"{library}:{name}" if library else name, {key: value for key, _, value in pairs})

    @property
    def text(self) -> str:
        """The name and all parameters, in one form: ``topk:density=0.01``."""
        values = ",".join(f"{key}={value}" for key, value in self.parameters)
        return f"{self.name}:{values}" if values else self.name

    @property
    def of_library(self) -> bool:
        """True if it is a technique of a library: the name has its file, or its fingerprint."""
        return ":" in self.name or "@" in self.name


def _library_of(text: str) -> str:
    """Returns the file, of a library of techniques, with which the text begins; "": it begins with a name."""
    first = text.partition(":")[0]
    return first if "/" in first or first.endswith(".so") else ""


def _is_word(text: str) -> bool:
    return bool(text) and not any(mark in text for mark in _RESERVED)


def is_list(value: str) -> bool:
    """Returns whether this is a list in brackets, which may have all marks."""
    if value[:1] != "[" or value[-1:] != "]":
        return False
    depths = list(accumulate((letter == "[") - (letter == "]") for letter in value))
    return depths[-1] == 0 and all(depth > 0 for depth in depths[:-1])
