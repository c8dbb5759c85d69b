"""The tensors that travel between the nodes: parameters, and the optimizer's state of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import torch

State = Mapping[torch.Tensor, Mapping[str, Any]]  # an optimizer's, by parameter and key


class Entry(NamedTuple):
    """A tensor in the optimizer's state of one parameter, in the parameter's shape."""

    parameter: int  # the parameter's number among those that travel
    key: str
    dtype: torch.dtype


class Carried:
    """Parameters, and those entries of the optimizer's state that the state had when they began to travel.

    The tensors of the entries are looked up at each use: the optimizer may replace them, and may add others
    while these travel. entries: the entries that travel; None: all that the state has now.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], state: State, entries: Sequence[Entry] | None = None
    ) -> None:
        self.parameters = list(parameters)
        self.entries = _entries(parameters, state) if entries is None else list(entries)

    def tensors(self, state: State) -> list[torch.Tensor]:
        """Returns the parameters and the entries' tensors.

        An entry that the state no longer has, or has in another form, gets memory that nobody reads.
        """
        return [*self.parameters, *(self._tensor(entry, state) for entry in self.entries)]

    def names(self, parameters: Sequence[str]) -> tuple[str, ...]:
        """Returns names of tensors(), from those of the parameters."""
        return (*parameters, *(f"{entry.key} of {parameters[entry.parameter]}" for entry in self.entries))

    def _tensor(self, entry: Entry, state: State) -> torch.Tensor:
        parameter = self.parameters[entry.parameter]
        found = state.get(parameter, {}).get(entry.key)
        if _travels(found, parameter) and found.dtype == entry.dtype:
            return found
        return torch.zeros_like(parameter, dtype=entry.dtype)


def _entries(parameters: Sequence[torch.Tensor], state: State) -> list[Entry]:
    found = [
        Entry(number, key, value.dtype)
        for number, parameter in enumerate(parameters)
        for key, value in sorted(state.get(parameter, {}).items())
        if key != "step" and _travels(value, parameter)
    ]
    # A scalar parameter has the shape of counts and of factors, which are no momentum.
    shaped = {entry.key for entry in found if parameters[entry.parameter].dim() > 0}
    return [entry for entry in found if parameters[entry.parameter].dim() > 0 or entry.key in shaped]


def _travels(value: Any, parameter: torch.Tensor) -> TypeGuard[torch.Tensor]:
    """Returns whether a value of the state is a floating tensor of the parameter's shape and device."""
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and (value.shape, value.device) == (parameter.shape, parameter.device)
    )
