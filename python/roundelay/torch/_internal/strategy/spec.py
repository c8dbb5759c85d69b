"""A technique as texts name it: by its name, or by the file of a library and its name there."""

from __future__ import annotations

from dataclasses import dataclass

Value = bool | int | float | str | tuple[str, ...] | list[str]
_RESERVED = ":,="


def _library_of(text: str) -> str:
    """Returns the file, of a library of techniques, with which the text begins; "": it begins with a name."""
    first = text.partition(":")[0]
    return first if "/" in first or first.endswith(".so") else ""


@dataclass(frozen=True, init=False)
class Spec:
    """A technique of the core and its parameters: ``Spec("topk", density=0.01)``. Immutable.

    The name of one in a library has the library's file before it: ``Spec("build/negate.so:negate")``.
    """

    name: str
    parameters: tuple[tuple[str, str], ...]  # pairs of key and value

    def __init__(self, name: str, **parameters: Value) -> None:
        """ValueError if the name or a value cannot be written as text."""
        given = tuple(sorted((key, _written(value)) for key, value in parameters.items()))
        library = _library_of(name)
        names = (library, name[len(library) + 1 :]) if library else (name,)
        for word in (*names, *(word for pair in given for word in pair)):
            if not word or any(mark in word for mark in _RESERVED):
                raise ValueError(f"{word!r} is no name or value: it is empty or has one of {_RESERVED}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "parameters", given)

    @property
    def text(self) -> str:
        """The name and all parameters, in one form: ``topk:density=0.01``."""
        values = ",".join(f"{key}={value}" for key, value in self.parameters)
        return f"{self.name}:{values}" if values else self.name

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Reads ``name`` or ``name:key=value,key=value``, or either after ``library.so:``.

        ValueError for anything else.
        """
        text = text.strip()
        library = _library_of(text)
        name, colon, rest = (text[len(library) + 1 :] if library else text).partition(":")
        pairs = [pair.partition("=") for pair in rest.split(",")] if colon else []
        if not name or any(not key or not value for key, _, value in pairs):
            form = "library.so:name:key=value" if library else "name:key=value,key=value"
            raise ValueError(f"{text!r} is not of the form {form}")
        keys = [key for key, _, _ in pairs]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f"{text!r} has {twice!r} more than once")
        return cls(f"{library}:{name}" if library else name, **{key: value for key, _, value in pairs})

    @property
    def of_library(self) -> bool:
        """True if the technique is of a library: the name has its file, or its fingerprint."""
        return ":" in self.name or "@" in self.name


def _written(value: Value) -> str:
    if isinstance(value, tuple | list):
        return "+".join(value)
    if isinstance(value, bool):
        return str(int(value))
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
