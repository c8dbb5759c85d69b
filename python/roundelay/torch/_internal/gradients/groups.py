"""The numbers of the user's groups: gradients that one operation reduces (csrc/gradients/group.h)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from roundelay.torch._internal.parameter_names import canonical_order, natural


def assign(num_groups: int, groups: Any, named: Mapping[torch.Tensor, str]) -> dict[int, int]:
    """Returns group numbers by id(parameter), from the arguments of DistributedOptimizer.

    named: the names of all parameters, from which the numbers follow: not from the order on this rank. A
    parameter without a number is in no group. ValueError: the arguments are wrong.
    """
    if num_groups:
        warnings.warn("num_groups is deprecated: use groups", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    if groups is None:
        return {}
    if isinstance(groups, int) and not isinstance(groups, bool) and groups >= 0:
        return _evenly(groups, named)
    if not isinstance(groups, list | tuple):
        raise ValueError(f"groups is {groups!r}, but must be a number from 0 on or lists of tensors")
    return _in_order_of_names(_as_listed(groups, {id(parameter) for parameter in named}), named)


def _evenly(number: int, named: Mapping[torch.Tensor, str]) -> dict[int, int]:
    """Divides the parameters into groups of neighbours: backward brings them one after the other."""
    if not number:
        return {}
    parameters = list(named)
    order = canonical_order(tuple(named.values()))
    return {id(parameters[place]): index * number // len(order) for index, place in enumerate(order)}


def _in_order_of_names(numbers: Mapping[int, int], named: Mapping[torch.Tensor, str]) -> dict[int, int]:
    """Returns the same groups, with numbers in the order of their first names."""
    every = sorted((one for one in named if id(one) in numbers), key=lambda one: natural(named[one]))
    new: dict[int, int] = {}
    return {id(one): new.setdefault(numbers[id(one)], len(new)) for one in every}


def _as_listed(groups: Iterable[Any], known: set[int]) -> dict[int, int]:
    numbers: dict[int, int] = {}
    for number, group in enumerate(groups):
        if isinstance(group, torch.Tensor) or not isinstance(group, Iterable):
            raise ValueError(f"groups[{number}] is a {type(group).__name__}, but must be a list of tensors")
        for parameter in group:
            if not isinstance(parameter, torch.Tensor):
                raise ValueError(f"groups[{number}] has a {type(parameter).__name__} that is not a tensor")
            if id(parameter) not in known:
                raise ValueError(
                    f"groups[{number}] has a tensor of shape {tuple(parameter.shape)} that is no parameter "
                    "of the optimizer (is it a .data, or of a copy of the model?)"
                )
            if id(parameter) in numbers:
                raise ValueError(f"groups[{number}] has a parameter that is in a group already")
            numbers[id(parameter)] = number
    return numbers
