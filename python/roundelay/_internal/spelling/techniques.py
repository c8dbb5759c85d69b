"""The core's texts of techniques, and the texts of users for the same.

The core's text has every parameter (csrc/compress/parameters.h), and some that a strategy computes for each
bucket, which no user writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roundelay._internal.spelling.form import Written
from roundelay._internal.spelling.reading import unknown, write
from roundelay._internal.spelling.table import STRATEGIES, momenta_of

_FLUSH = " flush"  # kFlush of csrc/wire/messages.h: it ends the text of a bucket that is flushed
_HALF = "half"  # the core's name of a dense allreduce with a wire
# The core's names of users' parameters, where they differ; and the parameters that a strategy computes.
_RENAMED: Mapping[str, Mapping[str, str]] = {"csc": {"chunk_elements": "chunk"}}
_COMPUTED: Mapping[str, frozenset[str]] = {
    "csc": frozenset(("before", "dense", "nesterov")),
    "topk": frozenset(("before", "dense", "nesterov")),
    "power_sgd": frozenset(("columns", "seed")),
    "quantised": frozenset(),
}
# What a strategy does beside its technique, so that the technique alone cannot take it.
_AROUND = ("warmup", "dense_below", "dense_parameters")


def for_core(written: Written) -> str:
    """Returns the text by which the core knows the technique; "dense": none.

    ValueError: it is a strategy that is more than a technique of each bucket. The core checks the rest.
    """
    name, parameters = written.name, dict(written.parameters)
    if written.of_library:
        return written.text
    if name == "dense":
        wire = parameters.get("wire", "none")
        return "dense" if wire == "none" else f"{_HALF}:wire={wire}"
    if name not in STRATEGIES:
        raise unknown(name)
    if name not in {*_COMPUTED, "allreduce"}:
        raise ValueError(
            f"strategy {name!r} is no technique of a bucket: give it to strategy= of DistributedOptimizer"
        )
    around = next((key for key in _AROUND if key in parameters), None)
    if around is not None:
        raise ValueError(
            f"technique {name!r} has no {around!r}, which is the strategy's: give {written.text} to "
            "strategy= of DistributedOptimizer"
        )
    renamed = _RENAMED.get(name, {})
    return Written.of(name, {renamed.get(key, key): value for key, value in parameters.items()}).text


def for_users(core: str) -> str:
    """Returns the text that a user writes for a technique of the core, as far as the technique knows it."""
    text, flush, _ = core.partition(_FLUSH)
    written = Written.read(text)
    if written.name == _HALF:
        written = Written("dense", written.parameters)
    if written.of_library or written.name not in STRATEGIES:
        return core
    back = {core: own for own, core in _RENAMED.get(written.name, {}).items()}
    takes = STRATEGIES[written.name].parameters
    values: dict[str, Any] = {}
    for key, value in written.parameters:
        own = back.get(key, key)
        if own == "momentum":  # the core's is a factor, which local momentum alone has
            values |= {} if value == "0" or momenta_of(written.name)[0] == "local" else {own: "local"}
        elif key not in _COMPUTED.get(written.name, ()) and own in takes:
            values[own] = takes[own].kind.read(own, value)
    return write(written.name, values) + flush
