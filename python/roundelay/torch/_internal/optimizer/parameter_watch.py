"""The parameters of a wrapped optimizer. Users may replace, add and remove some between two steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count

import torch

from roundelay import _core
from roundelay.torch._internal.parameter_names import names_of

Groups = Sequence[Sequence[torch.Tensor]]


class ParameterWatch:
    """The parameters in an optimizer's groups and their names. A parameter keeps its name while it stays.

    given: the names that the user gave, by parameter.
    """

    def __init__(self, given: Mapping[torch.Tensor, str]) -> None:
        self._given = given
        self._known = _core.KnownTensors()
        self._groups: Groups = []
        self.named: dict[torch.Tensor, str] = {}

    def unchanged(self, optimizer: torch.optim.Optimizer, halves: Sequence[torch.Tensor]) -> bool:
        """Returns whether the groups have the tensors of the last call, each as trainable as then.

        halves: the parameters of masters, which are always trainable.
        """
        return self._known.follow([*optimizer.param_groups, {"params": halves}])

    def forget(self) -> None:
        """Makes the next unchanged() return False."""
        self._known = _core.KnownTensors()

    def name(self, optimizer: torch.optim.Optimizer, groups: Groups) -> None:
        """Names the parameters in these groups: the optimizer's, without masters."""
        own = names_of(optimizer, groups, self._given)
        self.named = names_after_change(self._groups, self.named, groups, own)
        self._groups = groups


def names_after_change(
    before: Groups, named: Mapping[torch.Tensor, str], groups: Groups, own: Mapping[torch.Tensor, str]
) -> dict[torch.Tensor, str]:
    """Returns the names of all parameters in the groups after some were replaced, added or removed.

    before: the groups as they were, and their names. own: the names that new parameters have otherwise. One
    that has taken the place of another takes over its name.
    """
    gone = named.keys() - own.keys()
    taken = {name for parameter, name in named.items() if parameter in own}
    found: dict[torch.Tensor, str] = {}
    for number, group in enumerate(groups):
        for index, parameter in enumerate(group):
            name = named.get(parameter)
            if name is None:
                in_place = number < len(before) and index < len(before[number])
                old = before[number][index] if in_place else None
                name = _free(named[old] if old in gone else own[parameter], taken)
                taken.add(name)
            found[parameter] = name
    return found


def _free(name: str, taken: Collection[str]) -> str:
    """Returns the name, with a number if it is taken."""
    numbered = (f"{name}.{number}" for number in count(2))
    return name if name not in taken else next(one for one in numbered if one not in taken)
