"""The outer optimizer of local SGD. Its gradient is the change of the parameters between two averages.

Source: SlowMo (Wang et al., arXiv 1910.00643, algorithm 1) and DiLoCo (Douillard et al., arXiv 2311.08105,
algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from roundelay.torch.functions import broadcast_optimizer_state
from roundelay.torch.process_sets import ProcessSet

MakeOuter = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


class Outer:
    """The parameters' values at the last average, the *anchors*, and the optimizer that steps these.

    make: returns the optimizer of a list of tensors. ValueError: it returns something else.
    """

    def __init__(self, make: MakeOuter, parameters: Iterable[torch.Tensor]) -> None:
        self._make = make
        self._begin(list(parameters))

    def _begin(self, parameters: list[torch.Tensor]) -> None:
        """Makes the optimizer of these parameters' anchors."""
        self._batches = [parameters]  # the optimizer got the anchors of one after the other
        self._anchors = {one: _anchor(one) for one in parameters}
        self._optimizer = self._make(list(self._anchors.values()))
        if not isinstance(self._optimizer, torch.optim.Optimizer):
            raise ValueError(
                f"outer returned a {type(self._optimizer).__name__}, but must return a torch.optim.Optimizer "
                "of the parameters it is given"
            )

    @property
    def text(self) -> str:
        """The optimizer's class and settings; the same on ranks with the same optimizer."""
        settings = ", ".join(f"{key}={value!r}" for key, value in sorted(self._optimizer.defaults.items()))
        return f"{type(self._optimizer).__name__}({settings})"

    @torch.no_grad()
    def remember(self, parameters: Sequence[torch.Tensor]) -> None:
        """Makes the parameters' values their anchors, before the first step of a cycle."""
        new = [one for one in parameters if one not in self._anchors]
        if new:
            self._add(new)
        if parameters:
            torch._foreach_copy_([self._anchors[one] for one in parameters], list(parameters))

    def _add(self, parameters: list[torch.Tensor]) -> None:
        """Takes parameters that were frozen until now."""
        self._batches.append(parameters)
        self._anchors.update((one, _anchor(one)) for one in parameters)
        self._optimizer.add_param_group({"params": [self._anchors[one] for one in parameters]})

    def _forget(self, gone: Sequence[torch.Tensor]) -> None:
        """Drops parameters that the user's optimizer no longer has."""
        anchors = {self._anchors.pop(one) for one in gone}
        self._batches = [[one for one in batch if one in self._anchors] for batch in self._batches]
        for group in self._optimizer.param_groups:
            group["params"] = [one for one in group["params"] if one not in anchors]
        for anchor in anchors:
            self._optimizer.state.pop(anchor, None)

    @torch.no_grad()
    def step(self, parameters: Sequence[torch.Tensor], means: Sequence[torch.Tensor]) -> None:
        """Steps the anchors by their distance to the means, and gives the parameters their values."""
        if not parameters:
            return
        anchors = [self._anchors[one] for one in parameters]
        for anchor, mean in zip(anchors, means, strict=True):
            anchor.grad = anchor - mean
        self._optimizer.step()
        self._optimizer.zero_grad()
        torch._foreach_copy_(list(parameters), anchors)

    def give_to_all(self, root_rank: int, process_set: ProcessSet) -> None:
        """Gives all ranks the optimizer's state of one of them."""
        broadcast_optimizer_state(self._optimizer, root_rank, process_set=process_set)

    def state_dict(self, stepped: Sequence[torch.Tensor], changed: Sequence[int]) -> dict[str, Any]:
        """Returns the optimizer's state, and the anchors of the changed ones of these parameters."""
        places = {one: index for index, one in enumerate(stepped)}
        self._forget([one for one in self._anchors if one not in places])
        return {
            "optimizer": self._optimizer.state_dict(),
            "batches": [[places[one] for one in batch] for batch in self._batches],
            "anchors": [self._anchors[stepped[index]].detach().cpu().clone() for index in changed],
        }

    @torch.no_grad()
    def load_state_dict(
        self, stepped: Sequence[torch.Tensor], changed: Sequence[int], state: dict[str, Any]
    ) -> None:
        """Takes back what state_dict() returned. ValueError: it has anchors of other parameters."""
        parameters, anchors = [stepped[index] for index in changed], state["anchors"]
        shapes = [tuple(one.shape) for one in anchors], [tuple(one.shape) for one in parameters]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"this state is of another model: its anchors have shapes {shapes[0]!s:.200}, the parameters "
                f"{shapes[1]!s:.200}: load a state that was saved with this model"
            )
        first, *later = [[stepped[index] for index in batch] for batch in state["batches"]]
        self._begin(first)
        for batch in later:
            self._add(batch)
        self.remember(parameters)
        self._optimizer.load_state_dict(state["optimizer"])
        for parameter, anchor in zip(parameters, anchors, strict=True):
            self._anchors[parameter].copy_(anchor)


def _anchor(parameter: torch.Tensor) -> torch.Tensor:
    """Returns a copy that requires a gradient: some optimizers refuse other tensors."""
    return parameter.detach().clone().requires_grad_()
