"""Gradients that one operation reduces. The last gradient that becomes ready submits the group.

Without ``groups=`` each gradient is a group of its own. If backward brings only a part of a group, the group
waits for the agreement round (gradient_sync.py): then all ranks know which of its gradients any rank has,
and reduce those. Sparse gradients wait, too, as another rank may have a dense one, or none.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from roundelay import _core
from roundelay.torch import operations
from roundelay.torch.gradients.gradient import Contribution, Gradient, Operation
from roundelay.torch.operations.common import by_device
from roundelay.torch.parameter_names import canonical_order, natural
from roundelay.torch.process_sets import set_id

DENSE = 1  # the kind of a ready gradient; DENSE + n: it is sparse in n dimensions


class GradientGroup:
    """The gradients of one group. The core knows which are ready and counts operations."""

    def __init__(self, name: str, alone: bool, core: _core.GradientGroup | None = None) -> None:
        self.core = core or _core.GradientGroup(name)
        self.name = name
        self.members: list[Gradient] = []
        self.alone = alone  # its only member is in no group of the user's: the operation is a plain allreduce

    def join(self, gradient: Gradient) -> None:
        """Adds the gradient as the last member."""
        self.core.add(gradient.core)
        self.members.append(gradient)

    def arrived(self, gradient: Gradient) -> None:
        """Records that this gradient is complete on this rank. The last one submits the group."""
        if self.core.mark_ready(gradient.core, DENSE + gradient.sparse_dimensions()):
            self.catch_up()

    def outstanding(self) -> bool:
        """Returns whether the ranks have something of this group to agree on in the next round."""
        return self.core.filled > 0 or self.core.any_ready()

    def catch_up(self) -> None:
        """Submits the whole group, with zeros where this rank has no gradient."""
        self._submit([member for member in self.members if member.core.wanted])

    def submit_rest(self, kinds: dict[Gradient, int]) -> None:
        """Submits the gradients that are ready on some rank, with their kinds. All ranks submit the same."""
        dense = [gradient for gradient, kind in kinds.items() if kind == DENSE]
        if dense:
            self._submit(dense)
        for gradient, kind in kinds.items():
            parameter = gradient.core.parameter
            if kind > DENSE and parameter is not None:
                tensor = gradient.sparse_contribution(parameter, kind - DENSE)
                rule = gradient.rule
                name = self.core.next_name(f"{gradient.name}.sparse")
                gradient.submitted(operations.sparse_allreduce_async(tensor, name, rule.op, rule.process_set))
        self.core.unmark_all()

    def names_in_step(self) -> list[str]:
        """Returns the names of this step's operations, in flight or complete, as next_name() gave them."""
        numbers = range(1, self.core.operations + 1)
        return [self.name if number == 1 else f"{self.name}.pass{number}" for number in numbers]

    def finish(self) -> None:
        """Sleeps until all that was submitted is complete."""
        for member in self.members:
            if member.pending:
                member.finish()

    def abandon(self) -> None:
        """Waits for operations in flight after a failure, ignores their results, and starts anew."""
        for member in self.members:
            member.abandon()

    def _submit(self, gradients: Sequence[Gradient]) -> None:
        self.core.wait_for_producers()
        given: list[tuple[Gradient, Contribution]] = []
        for gradient in gradients:
            parameter = gradient.core.parameter
            self.core.unmark(gradient.core)
            if parameter is not None:
                given.append((gradient, gradient.contribution(parameter)))
        for part in by_device((contribution.wire, (one, contribution)) for one, contribution in given):
            self._submit_on_one_device(part)

    def _submit_on_one_device(self, given: list[tuple[Gradient, Contribution]]) -> None:
        rule = given[0][0].rule
        wires = [contribution.wire for _, contribution in given]
        scale = (rule.prescale_factor, rule.postscale_factor)
        number = set_id(rule.process_set)
        name = self.core.next_name(self.name)
        if self.alone:
            handle = _core.allreduce_async(wires[0], wires[0], name, rule.op, *scale, number)
        else:
            handle = _core.grouped_allreduce_async(wires, wires, name, rule.op, *scale, number)
        operation = Operation(handle)
        for gradient, contribution in given:
            contribution.operation = operation
            gradient.submitted(contribution)


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
