"""A technique of the core and its parameters, as objects and as text."""

from __future__ import annotations

from dataclasses import dataclass

Value = bool | int | float | str | tuple[str, ...] | list[str]
_RESERVED = ":,="


@dataclass(frozen=True, init=False)
class Spec:
    """A technique of the core and its parameters: ``Spec("cyclic", parts=4)``. Immutable."""

    name: str
    parameters: tuple[tuple[str, str], ...]  # pairs of key and value

    def __init__(self, name: str, **parameters: Value) -> None:
        """ValueError if the name or a value cannot be written as text."""
        given = tuple(sorted((key, _written(value)) for key, value in parameters.items()))
        for word in (name, *(word for pair in given for word in pair)):
            if not word or any(mark in word for mark in _RESERVED):
                raise ValueError(f"{word!r} is no name or value: it is empty or has one of {_RESERVED}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "parameters", given)

    @property
    def text(self) -> str:
        """The name and all parameters, in one form: ``cyclic:parts=4``."""
        values = ",".join(f"{key}={value}" for key, value in self.parameters)
        return f"{self.name}:{values}" if values else self.name

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Reads ``name`` or ``name:key=value,key=value``. ValueError for anything else."""
        name, colon, rest = text.strip().partition(":")
        pairs = [pair.partition("=") for pair in rest.split(",")] if colon else []
        if not name or any(not key or not value for key, _, value in pairs):
            raise ValueError(f"{text!r} is not of the form name:key=value,key=value")
        keys = [key for key, _, _ in pairs]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f"{text!r} has {twice!r} more than once")
        return cls(name, **{key: value for key, _, value in pairs})


def _written(value: Value) -> str:
    if isinstance(value, tuple | list):
        return "+".join(value)
    if isinstance(value, bool):
        return str(int(value))
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
