"""The gradients of one optimizer, and the groups in which operations reduce them, alike on all ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch

from roundelay import _core
from roundelay.torch._internal.gradients.gradient import Gradient, Reduction
from roundelay.torch._internal.gradients.pool import PoolBucket
from roundelay.torch._internal.optimizer import equality
from roundelay.torch._internal.parameter_list import Row, in_order
from roundelay.torch._internal.parameter_names import natural


class GradientTable:
    """The gradients: each is alone, in a group of the user's, or in a bucket of a pool.

    prefix: that of the optimizer's names. grouping: numbers of the user's groups, by id(parameter). way: the
    text of the strategy and the compression.
    """

    def __init__(self, prefix: str, rule: Reduction, grouping: Mapping[int, int], way: str) -> None:
        self._prefix = prefix
        self._rule = rule
        self._grouping = grouping
        self._way = way
        self.records: dict[int, Gradient] = {}  # keys: id(parameter)
        # Those of the user's groups, in the order in which they came. Gone ones stay until begin_anew().
        self._grouped: list[Gradient] = []
        self._groups: dict[int | str, _core.GradientGroup] = {}  # keys: numbers; names if alone
        self._buckets: Sequence[PoolBucket] = ()
        self.members: list[Gradient] = []  # the gradients of all groups, in the groups' order
        self.rows: list[Row] = []  # what ranks compare of the parameters
        self.digest = equality.NO_DIGEST  # of the rows and the way

    def follow(self, named: Mapping[torch.Tensor, str]) -> bool:
        """Makes these the parameters whose gradients it has. Returns whether it had those of others before.

        A parameter of two optimizers belongs to the one that was wrapped last: its gradient is reduced once.
        """
        before = self.records.copy()
        numbers = self._let_go(named)
        rule = self._rule.for_core()
        for parameter, name in sorted(named.items(), key=lambda pair: natural(pair[1])):
            number = id(parameter)
            if number in self.records:
                continue
            group = numbers.get(name, self._grouping.get(number))
            gradient = Gradient(parameter, f"{self._prefix}.{name}", self._rule, group)
            self.records[number] = gradient
            gradient.own(number)
            self._join(gradient, rule)
        self._put_in_order()
        return bool(before) and before != self.records

    def _let_go(self, named: Collection[torch.Tensor]) -> dict[str, int]:
        """Lets go of all parameters but these. Returns the numbers of the groups that they were in, by name.

        They stay in groups of several gradients, as unwanted, until begin_anew().
        """
        numbers: dict[str, int] = {}
        present = set(map(id, named))
        for number, gradient in list(self.records.items()):
            if number in present and gradient.core.parameter is not None:  # else the number is a new one's
                continue
            del self.records[number]
            gradient.disown(number)
            if gradient.group is not None:
                numbers[self._short(gradient)] = gradient.group
            self._groups.pop(gradient.name, None)  # it was alone
        return numbers

    def _short(self, gradient: Gradient) -> str:
        return gradient.name.removeprefix(f"{self._prefix}.")

    def _join(self, gradient: Gradient, rule: _core.Rule) -> None:
        number = gradient.group
        if number is None:
            group = self._groups[gradient.name] = _core.GradientGroup(gradient.name, rule)
        elif number in self._groups:
            group = self._groups[number]
        else:
            group = self._groups[number] = _core.GradientGroup(f"{self._prefix}.group{number}", rule)
        if number is not None:
            self._grouped.append(gradient)
        group.add(gradient.core)

    def use(self, buckets: Sequence[PoolBucket]) -> None:
        """Moves gradients into these buckets. They were alone or in other buckets before."""
        self._buckets = buckets
        for bucket in buckets:
            for gradient in bucket.members:
                self._groups.pop(gradient.name, None)
        self._put_in_order()

    def begin_anew(self) -> None:
        """Begins without buckets, and with groups that count from the beginning."""
        self._groups.clear()
        self._grouped.clear()
        self._buckets = ()
        rule = self._rule.for_core()
        for gradient in self.records.values():
            self._join(gradient, rule)
        self._put_in_order()

    def _put_in_order(self) -> None:
        """Puts groups and gradients in the canonical order, in which rounds have them; buckets come last."""
        in_place = sorted(self._groups.items(), key=lambda item: natural(item[1].gradients[0].name))
        self._groups = dict(in_place)
        records = {gradient.core: gradient for gradient in (*self._grouped, *self.records.values())}
        self.members = [records[core] for group in self._groups.values() for core in group.gradients]
        self.members += [gradient for bucket in self._buckets for gradient in bucket.members]
        self.rows = in_order(
            one.row._replace(name=self._short(one), group=one.group) for one in self.records.values()
        )
        self.digest = equality.digest_of_parameters(self.rows, self._way)

    def parameters(self) -> dict[str, torch.Tensor]:
        """Returns the parameters by name, in the canonical order."""
        every = ((self._short(one), one.core.parameter) for one in self.records.values())
        named = {name: parameter for name, parameter in every if parameter is not None}
        return {row.name: named[row.name] for row in self.rows if row.name in named}

    def groups(self) -> list[_core.GradientGroup]:
        """Returns all groups, buckets last, in the order of ``members``."""
        return [*self._groups.values(), *(bucket.core for bucket in self._buckets)]

    def buckets(self) -> int:
        """Returns the number of buckets."""
        return len(self._buckets)
