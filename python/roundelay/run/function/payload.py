"""Packs a function and its arguments for the ranks."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, BinaryIO

import cloudpickle

from roundelay.run.function.by_value import PROTOCOL, dump
from roundelay.run.system.anonymous import anonymous_file


def pack(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> BinaryIO:
    """Returns a file without a name that holds the call, sys.path and sys.argv; worker.py reads it.

    Raises TypeError if the function, args or kwargs cannot be pickled; its text names which.
    """
    payload = anonymous_file()
    here = {"path": [os.path.abspath(entry) for entry in sys.path], "argv": sys.argv}
    try:
        pickle.dump(here, payload, PROTOCOL)
        with _unfindable_module_by_value(func):
            _dump(func, tuple(args), dict(kwargs), payload)
        payload.flush()
    except BaseException:
        payload.close()
        raise
    return payload


def _dump(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], payload: BinaryIO) -> None:
    try:
        dump((func, args, kwargs), payload)
    except Exception as error:
        for what, content in (("the function", func), ("args", args), ("kwargs", kwargs)):
            try:
                cloudpickle.dumps(content, PROTOCOL)
            except Exception:
                raise TypeError(f"{what} cannot be sent to the ranks: {error}") from error
        raise


@contextlib.contextmanager
def _unfindable_module_by_value(func: Callable[..., Any]) -> Iterator[None]:
    """Pickles the function's module by value inside ``with``, if a rank could not import it.

    cloudpickle does so for __main__ by itself; but pytest, for one, imports files that are not on sys.path.
    """
    while isinstance(func, functools.partial):
        func = func.func
    module = sys.modules.get(getattr(func, "__module__", None) or "__main__")
    registered = cloudpickle.list_registry_pickle_by_value()
    if module is None or module.__name__ in registered or _is_findable(module):
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _is_findable(module: ModuleType) -> bool:
    """Returns whether an import by name, with the same path, would find this module and no other."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or file is None:
        return True
    parent: str | None = None
    path: list[str] | None = None
    for part in module.__name__.split("."):
        name = part if parent is None else f"{parent}.{part}"
        if parent is not None and path is None:
            return False
        found = (finder.find_spec(name, path) for finder in sys.meta_path)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None:
            return False
        locations = spec.submodule_search_locations
        parent, path = name, None if locations is None else list(locations)
    return spec is not None and os.path.realpath(spec.origin or "") == os.path.realpath(file)
