"""Pickles functions by value, so that a traceback in another process shows their source."""

from __future__ import annotations

import operator
from collections import ChainMap
from types import CodeType
from typing import Any, BinaryIO, ClassVar

import cloudpickle

PROTOCOL = 5
_reducers = cloudpickle.CloudPickler.dispatch_table


def _code_with_file(code: CodeType) -> tuple[Any, ...]:
    """Keeps the name of the code's file, which cloudpickle replaces since 3.1.3."""
    if not code.co_filename:
        reduced: tuple[Any, ...] = _reducers[CodeType](code)
        return reduced
    return operator.methodcaller("replace", co_filename=code.co_filename), (code.replace(co_filename=""),)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # cloudpickle has no types
    dispatch_table: ClassVar[Any] = ChainMap({CodeType: _code_with_file}, _reducers)


def dump(value: object, file: BinaryIO) -> None:
    """Writes the pickle. Raises what cloudpickle raises where a part cannot be pickled."""
    _Pickler(file, PROTOCOL).dump(value)
