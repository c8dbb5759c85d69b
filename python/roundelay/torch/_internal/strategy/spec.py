"""A technique of a bucket, as a strategy names it: by its name, or by a library's file and its name there."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache

from roundelay import _core
from roundelay._internal.spelling.form import Value, Written
from roundelay._internal.spelling.table import alias_of
from roundelay._internal.spelling.techniques import for_core


@dataclass(frozen=True, init=False)
class Spec:
    """A technique of the core and its parameters: ``Spec("topk", density=0.01)``. Immutable.

    It takes a text, too: ``Spec("topk:density=0.01")``. The name of one in a library has the library's file
    before it: ``Spec("build/negate.so:negate")``. Its code then runs in this process.
    """

    name: str
    parameters: tuple[tuple[str, str], ...]  # pairs of key and value
    core: str = field(compare=False, repr=False)  # the core's text of it; "dense": a plain allreduce

    def __init__(self, technique: str, **parameters: Value) -> None:
        """ValueError: there is no such technique, or it does not take such a parameter."""
        read = Written.read(technique)
        alias = alias_of(read.name)
        name, given = (read.name, {}) if alias is None else (alias[0], dict(alias[1]))
        written = Written.of(name, {**given, **dict(read.parameters), **parameters})
        object.__setattr__(self, "name", written.name)
        object.__setattr__(self, "parameters", written.parameters)
        folder = os.getcwd() if written.of_library else ""
        object.__setattr__(self, "core", _canonical(for_core(written), folder))

    @property
    def text(self) -> str:
        """The name and all parameters, in one form: ``topk:density=0.01``."""
        return Written(self.name, self.parameters).text

    @property
    def of_library(self) -> bool:
        """True if the technique is of a library: the name has its file, or its fingerprint."""
        return Written(self.name).of_library

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Does as ``Spec(text)``."""
        return cls(text)


@cache
def _canonical(text: str, folder: str) -> str:
    """Returns the core's one form of a technique's text. A strategy asks for few texts, again and again.

    folder: the one in which the relative path of a library begins.
    """
    return text if text == "dense" else _core.technique_text(text)
