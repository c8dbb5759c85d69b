"""What ranks compare of an optimizer's parameters, and the text that names the first difference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from roundelay.torch._internal.parameter_names import natural


class Row(NamedTuple):
    """A parameter, as ranks compare it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    group: int | None = None  # its number among groups that the ranks must have alike; None: in no group
    strides: tuple[
        int, ...
    ] = ()  # those of dimensions with several elements, where memory is reduced as it is


Ranked = tuple[int, Sequence[Row]]  # a rank and its parameters, in the canonical order


def kind_of(parameter: torch.Tensor) -> tuple[tuple[int, ...], str]:
    """Returns shape and dtype; no shape while a lazy layer has not seen a batch."""
    lazy = torch.nn.parameter.is_lazy(parameter)
    return () if lazy else tuple(parameter.shape), str(parameter.dtype).removeprefix("torch.")


def rows_of(named: Iterable[tuple[str, torch.Tensor]]) -> list[Row]:
    """Returns the rows of parameters that are in no group, in the canonical order."""
    return in_order(Row(name, *kind_of(parameter)) for name, parameter in named)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Returns the rows in the canonical order."""
    return sorted(rows, key=lambda row: natural(row.name))


def first_other(ranked: Sequence[Ranked]) -> tuple[Ranked, Ranked] | None:
    """Returns the first rank and the first one that differs from it; None: all are equal."""
    other = next((one for one in ranked if one[1] != ranked[0][1]), None)
    return None if other is None else (ranked[0], other)


def difference(first: Ranked, other: Ranked) -> str:
    """Says what differs between the parameters of two ranks, which are not equal: the first one that a rank
    lacks, or else the first one that is not alike.
    """
    rows = {row.name: row for row in first[1]}
    others = {row.name: row for row in other[1]}
    missing = min(rows.keys() ^ others.keys(), key=natural, default=None)
    if missing is not None:
        has, lacks = (first, other) if missing in rows else (other, first)
        return (
            f"rank {has[0]} has {missing!r} (of {len(has[1])} parameters), rank {lacks[0]} "
            f"({len(lacks[1])} parameters) does not"
        )
    for name, row in rows.items():
        if row != others[name]:
            here, there = _unequal(row, others[name])
            return f"{name!r} {here} on rank {first[0]} and {there} on rank {other[0]}"
    # A name comes twice.
    return f"rank {first[0]} has {len(first[1])} parameters, rank {other[0]} {len(other[1])}"


def _unequal(one: Row, two: Row) -> tuple[str, str]:
    """Says how two rows of one name differ: the first field that does, with both values."""
    if one.shape != two.shape:
        return f"has shape {one.shape}", f"{two.shape}"
    if one.dtype != two.dtype:
        return f"is {one.dtype}", two.dtype
    if one.strides != two.strides:
        return f"has strides {one.strides} (memory_format)", f"{two.strides}"
    here, there = ("in no group" if row.group is None else f"in group {row.group}" for row in (one, two))
    return f"is {here}", there
