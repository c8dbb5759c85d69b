"""The parameters of an optimizer, group by group, and the numbers that its state dict gives them.

A state dict knows parameters by position. Ranks may have them in different orders, so a state dict of another
rank is numbered anew, by the names of the parameters (parameter_names.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from roundelay.torch._internal.parameter_list import Row, in_order, kind_of
from roundelay.torch._internal.parameter_names import present_names

MASTERS_KEY = "master_weights"  # in a state dict: fp32 masters, by the parameter's number (master_weights.py)

Layout = list[list[Row]]  # the parameters in the optimizer's order; a row's group is its parameter group


def layout_of(optimizer: torch.optim.Optimizer) -> Layout:
    """Returns the optimizer's parameters."""
    names = present_names(optimizer)
    return [
        [
            Row(name, *kind_of(parameter), number)
            for name, parameter in zip(names[number], group["params"], strict=True)
        ]
        for number, group in enumerate(optimizer.param_groups)
    ]


def rows_in(layout: Layout, ordered: bool) -> list[Row]:
    """Returns what must be equal on all ranks: the rows in the canonical order.

    ordered: the state depends on the order of the parameters, which must be equal, too.
    """
    rows = [row for group in layout for row in group]
    if ordered:
        rows = [row._replace(name=f"{number}: {row.name}") for number, row in enumerate(rows)]
    return in_order(rows)


def needs_order(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether the optimizer's state has all parameters in one tensor."""
    return isinstance(optimizer, torch.optim.LBFGS)


def renumbered(state_dict: Any, theirs: Layout, mine: Layout) -> Any:
    """Returns another rank's state dict with the numbers that this rank's optimizer gives its parameters.

    Both have the same parameters in each group.
    """
    numbers, own = _numbers(theirs), _numbers(mine)
    new = {number: own[name] for name, number in numbers.items()}
    if not isinstance(state_dict, Mapping) or all(one == other for one, other in new.items()):
        return state_dict
    made = dict(state_dict)
    for key in ("state", MASTERS_KEY):
        if isinstance(made.get(key), Mapping):
            made[key] = {new.get(number, number): value for number, value in made[key].items()}
    made["param_groups"] = [
        _in_own_order(group, rows, own) for group, rows in zip(made["param_groups"], mine, strict=True)
    ]
    return made


def _numbers(layout: Layout) -> dict[str, int]:
    """Returns the numbers of the parameters by name; the first one of a parameter that is there twice."""
    numbers: dict[str, int] = {}
    for number, row in enumerate(row for group in layout for row in group):
        numbers.setdefault(row.name, number)
    return numbers


def _in_own_order(group: Mapping[str, Any], rows: list[Row], own: Mapping[str, int]) -> dict[str, Any]:
    names = {"param_names": [row.name for row in rows]} if "param_names" in group else {}
    return {**group, "params": [own[row.name] for row in rows], **names}
