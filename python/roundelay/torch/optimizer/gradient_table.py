"""The gradients of one optimizer, and the groups in which operations reduce them, alike on all ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import torch

from roundelay.torch.gradients.gradient import Gradient, Reduction
from roundelay.torch.gradients.groups import GradientGroup
from roundelay.torch.gradients.pool import Bucket
from roundelay.torch.optimizer import equality
from roundelay.torch.parameter_list import Row, in_order
from roundelay.torch.parameter_names import natural


class GradientTable:
    """A gradient is alone, in a group of the user's, or in a bucket of a pool.

    prefix: that of the optimizer's names. grouping: numbers of the user's groups, by id(parameter). way: the
    text of the strategy and the compression.
    """

    def __init__(self, prefix: str, rule: Reduction, grouping: dict[int, int], way: str) -> None:
        self._prefix = prefix
        self._rule = rule
        self._grouping = grouping
        self._way = way
        self.gradients: dict[int, Gradient] = {}  # keys: id(parameter)
        self.groups: dict[int | str, GradientGroup] = {}  # keys: numbers, or names for groups without one
        self.group_of: dict[Gradient, GradientGroup] = {}
        self.members: list[Gradient] = []  # the gradients of all groups, in the groups' order
        self.rows: list[Row] = []  # what ranks compare of the parameters
        self.digest = b""  # of the rows and the way, both ways (equality.py)

    def follow(self, named: Mapping[torch.Tensor, str]) -> bool:
        """Has the gradients of these parameters from now on. Returns whether it had those of others before.

        A parameter of two optimizers belongs to the one that was wrapped last: its gradient is reduced once.
        """
        before = self.gradients.copy()
        numbers = self._let_go(named)
        for parameter, name in sorted(named.items(), key=lambda pair: natural(pair[1])):
            number = id(parameter)
            if number in self.gradients:
                continue
            gradient = self.gradients[number] = Gradient(parameter, f"{self._prefix}.{name}", self._rule)
            gradient.own(number)
            if name in numbers:
                self._grouping[number] = numbers[name]
            self._join(gradient, self._grouping.get(number))
        self._put_in_order()
        return bool(before) and before != self.gradients

    def _let_go(self, named: Collection[torch.Tensor]) -> dict[str, int]:
        """Lets go of all parameters but these. Returns the numbers of the groups that they were in, by name.

        They stay in groups of several gradients, as unwanted, until begin_anew().
        """
        numbers: dict[str, int] = {}
        present = set(map(id, named))
        for number, gradient in list(self.gradients.items()):
            if number in present and gradient.core.parameter is not None:  # else the number is a new one's
                continue
            del self.gradients[number]
            gradient.disown(number)
            if number in self._grouping:
                numbers[self._short(gradient)] = self._grouping.pop(number)
            if self.group_of[gradient].alone:
                del self.groups[gradient.name], self.group_of[gradient]
        return numbers

    def _short(self, gradient: Gradient) -> str:
        return gradient.name.removeprefix(f"{self._prefix}.")

    def _join(self, gradient: Gradient, number: int | None) -> None:
        if number is None:
            group = self.groups[gradient.name] = GradientGroup(gradient.name, alone=True)
        else:
            name = f"{self._prefix}.group{number}"
            group = self.groups.setdefault(number, GradientGroup(name, alone=False))
        group.join(gradient)
        self.group_of[gradient] = group

    def use(self, buckets: Iterable[Bucket]) -> None:
        """Moves gradients into these buckets. They were alone or in other buckets before."""
        for bucket in buckets:
            for gradient in bucket.members:
                self.groups.pop(self.group_of[gradient].name, None)
                self.group_of[gradient] = bucket
            self.groups[bucket.name] = bucket
        self._put_in_order()

    def begin_anew(self) -> None:
        """Begins without buckets, and with groups that count from the beginning."""
        self.groups.clear()
        self.group_of.clear()
        for number, gradient in self.gradients.items():
            self._join(gradient, self._grouping.get(number))
        self._put_in_order()

    def _put_in_order(self) -> None:
        """Puts groups and gradients in the canonical order, in which rounds have them; buckets come last."""
        alone = {k: group for k, group in self.groups.items() if not isinstance(group, Bucket)}
        buckets = {k: group for k, group in self.groups.items() if isinstance(group, Bucket)}
        in_place = sorted(alone.items(), key=lambda item: natural(item[1].members[0].name))
        self.groups = {**dict(in_place), **buckets}
        self.members = [gradient for group in self.groups.values() for gradient in group.members]
        self.rows = in_order(
            one.row._replace(name=self._short(one), group=self._grouping.get(number))
            for number, one in self.gradients.items()
        )
        self.digest = equality.both_ways(equality.digest_of_parameters(self.rows, self._way))

    def buckets(self) -> int:
        """Returns the number of buckets."""
        return sum(isinstance(group, Bucket) for group in self.groups.values())

    def may_be_in_pool(self, gradient: Gradient) -> bool:
        """Returns whether the gradient is in no group of the user's."""
        group = self.group_of[gradient]
        return group.alone or isinstance(group, Bucket)
