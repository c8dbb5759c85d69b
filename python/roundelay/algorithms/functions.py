"""The functions that a run calls, plain or with checks (``check=True``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from roundelay.algorithms.errors import BrokenContractError
from roundelay.algorithms.trees import digest, leaves, named


@dataclass(frozen=True)
class Functions:
    """The algorithm's functions and the criterion that ends its run."""

    evaluate: Callable[[Any, Any], Any]
    combine: Callable[[Any, Any], Any]
    update: Callable[[Any, Any], Any]
    until: Callable[[Any], Any]


def checked(functions: Functions) -> Functions:
    """Returns functions that call the given ones twice, and raise BrokenContractError if one is not pure."""
    return Functions(
        _twice(functions.evaluate, ("the state", "its shard")),
        _twice(functions.combine, ("its first argument", "its second argument")),
        _twice(functions.update, ("the state", "the total")),
        _twice(functions.until, ("the state",)),
    )


def _twice(function: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        before = [digest(argument) for argument in arguments]
        first = function(*arguments)
        kept = dict(leaves(first))
        bits = {path: digest(leaf) for path, leaf in kept.items()}
        second = function(*arguments)
        for name, argument, old in zip(names, arguments, before, strict=True):
            if digest(argument) != old:
                raise BrokenContractError(f"changes {name}: it must return new tensors")
        for path, leaf in leaves(second):
            if bits.get(path) != digest(leaf):
                raise BrokenContractError(
                    f"is not pure: two calls with the same arguments give two values for {named(path)}"
                )
        for path, leaf in kept.items():
            if digest(leaf) != bits[path]:
                raise BrokenContractError(
                    f"is not pure: a second call changes {named(path)} of the first's result"
                )
        return first

    return called


def check_associative(combine: Callable[[Any, Any], Any], partials: list[Any]) -> None:
    """Raises BrokenContractError if two orders of combination differ by more than rounding does.

    partials: those of neighbouring shards, at least one. One or two of them are taken twice or more.
    """
    row = partials if len(partials) > 2 else [partials[0], partials[0], partials[-1]]
    left = row[0]
    for partial in row[1:]:
        left = combine(left, partial)
    right = row[-1]
    for partial in reversed(row[:-1]):
        right = combine(partial, right)
    others, columns = dict(leaves(right)), [dict(leaves(partial)) for partial in row]
    for path, one in leaves(left):
        other = others[path]
        difference, allowed = _difference(one, other, [column[path] for column in columns])
        if difference > allowed:
            raise BrokenContractError(
                f"is not associative: two orders of {len(row)} partial results give values of {named(path)} "
                f"that differ by {difference:.3g}, and rounding explains {allowed:.3g} at most"
            )


def _difference(one: torch.Tensor, other: torch.Tensor, parts: list[torch.Tensor]) -> tuple[float, float]:
    """Returns the largest difference of two elements, and the largest that rounding may cause."""
    finite = one.isfinite() & other.isfinite()
    if not torch.allclose(one[~finite], other[~finite], 0.0, 0.0, equal_nan=True):
        return math.inf, 0.0
    one, other = one[finite], other[finite]
    if torch.equal(one, other):
        return 0.0, 0.0
    wide = torch.complex128 if one.is_complex() else torch.float64
    difference = (one.to(wide) - other.to(wide)).abs().max()
    if not (one.is_floating_point() or one.is_complex()):
        return float(difference), 0.0
    largest = max(
        float(part.abs().nan_to_num(0.0, 0.0).max()) for part in (one, other, *parts) if part.numel()
    )
    return float(difference), 8 * len(parts) * torch.finfo(one.dtype).eps * largest
