"""Names of an optimizer's parameters, and the order that follows from them.

Ranks may list the parameters of one model in different orders. What travels by position therefore goes in the
*canonical* order, that of the names: the same on all ranks. Parameters without names are called by their
positions, so their order is that of the optimizer.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import torch

Names = list[list[str]]  # of the parameters, group by group
_DIGITS = re.compile("([0-9]+)")

# Functions that return the names of an optimizer that DistributedOptimizer has wrapped. It writes this table.
of_wrapped: weakref.WeakKeyDictionary[torch.optim.Optimizer, Callable[[], Names]]
of_wrapped = weakref.WeakKeyDictionary()


def natural(name: str) -> tuple[list[str | int], str]:
    """Returns a key that sorts names with their digits as numbers: ``layer.2`` comes before ``layer.10``."""
    words = _DIGITS.split(name)  # every second one is a number
    return [int(word) if place % 2 else word for place, word in enumerate(words)], name


@lru_cache(maxsize=64)
def canonical_order(names: tuple[str, ...]) -> tuple[int, ...]:
    """Returns the positions of these names in the canonical order."""
    return tuple(sorted(range(len(names)), key=lambda position: natural(names[position])))


def group_names(
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Sequence[torch.Tensor]],
    given: Mapping[torch.Tensor, str],
) -> Names:
    """Returns the names of the parameters in the groups.

    They are those that were given. If none were given, they are those that torch.optim.Optimizer got. A
    parameter without a name is ``noname.group.index``.
    """
    own = None if given else _own_names(optimizer, groups)
    if own is not None:
        return own
    return [
        [given.get(one, f"noname.{number}.{index}") for index, one in enumerate(group)]
        for number, group in enumerate(groups)
    ]


def _own_names(optimizer: torch.optim.Optimizer, groups: Sequence[Sequence[torch.Tensor]]) -> Names | None:
    """Returns the names that torch.optim.Optimizer got; None: not each parameter has one of its own."""
    found = [list(group.get("param_names") or ()) for group in optimizer.param_groups]
    names = [name for group in found for name in group]
    lengths = [len(group) for group in groups] == [len(group) for group in found]
    return found if lengths and len(set(names)) == len(names) else None


def names_of(
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Sequence[torch.Tensor]],
    given: Mapping[torch.Tensor, str],
) -> dict[torch.Tensor, str]:
    """Returns group_names() by parameter, in the order of the groups."""
    names = group_names(optimizer, groups, given)
    return {
        parameter: name
        for group, named in zip(groups, names, strict=True)
        for parameter, name in zip(group, named, strict=True)
    }


def present_names(optimizer: torch.optim.Optimizer) -> Names:
    """Returns the names of the tensors in the optimizer's groups: its own, or those it was wrapped with."""
    wrapped = of_wrapped.get(optimizer)
    if wrapped is not None:
        return wrapped()
    return group_names(optimizer, [group["params"] for group in optimizer.param_groups], {})


def in_canonical_order(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Returns the tensors of the optimizer's groups by name, in the canonical order.

    These are the tensors that it steps: the fp32 master of a parameter that has one.
    """
    names = tuple(name for group in present_names(optimizer) for name in group)
    tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    return {names[position]: tensors[position] for position in canonical_order(names)}
