"""The common part of LARS and LAMB: parameter groups, checks, and a step with one trust ratio for each layer.

A *layer* is a parameter: a weight or a bias. ``adapt=False`` in a parameter group gives its layers the
ratio 1, as is usual for biases and for the parameters of normalisations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from roundelay.torch._internal.parameter_names import in_canonical_order
from roundelay.torch._internal.strategy.attached import attached
from roundelay.torch.optim.norms import norms
from roundelay.torch.optim.report import NormsReport
from roundelay.torch.optim.trust_ratios import MODES, Description, Layers, TrustRatios
from roundelay.torch.process_sets import ProcessSet

Group = dict[str, Any]
_DTYPES = (torch.float32, torch.float64)


@dataclass
class _Part:
    """The parameters of one group that have gradients, in one step."""

    group: Group
    parameters: list[torch.Tensor] = field(default_factory=list)
    directions: list[torch.Tensor] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    def blocks(self) -> Iterator[slice]:
        """Yields the parameters that one multi-tensor call works on: all, or each alone."""
        foreach = self.group["foreach"]
        if foreach is None:  # a CPU's multi-tensor calls work tensor by tensor anyway
            foreach = all(parameter.device.type != "cpu" for parameter in self.parameters)
        step = len(self.parameters) if foreach else 1
        for begin in range(0, len(self.parameters), max(1, step)):
            yield slice(begin, begin + step)


class Layerwise(torch.optim.Optimizer, ABC):
    """An optimizer that scales the update of each layer by a trust ratio of norms."""

    def __init__(
        self, params: Any, defaults: Group, distributed_norms: str | bool, process_set: ProcessSet
    ) -> None:
        if not any(distributed_norms is mode or distributed_norms == mode == "auto" for mode in MODES):
            raise ValueError(f'distributed_norms is {distributed_norms!r}, but must be "auto", True or False')
        if not isinstance(process_set, ProcessSet):
            raise ValueError(f"process_set must be a ProcessSet, not {process_set!r}")
        super().__init__(params, defaults)
        self._trust = TrustRatios(type(self).__name__, distributed_norms, process_set)

    # -- for LARS and LAMB to override

    @abstractmethod
    def _check_group(self, group: Group) -> None:
        """Raises ValueError if an option of the group is wrong."""

    @abstractmethod
    def _directions(self, group: Group, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the tensors whose norms the trust ratios need. Changes nothing: the step may still fail."""

    @abstractmethod
    def _ratios(self, group: Group, weights: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        """Returns the trust ratios for norms above 0: fp64 on the CPU, shape (layers,), like the arguments.

        Each operation rounds once, so that an element's bits do not depend on its place.
        """

    @abstractmethod
    def _apply(
        self,
        group: Group,
        parameters: list[torch.Tensor],
        directions: list[torch.Tensor],
        ratios: list[float],
    ) -> None:
        """Updates the parameters."""

    # -- torch.optim.Optimizer

    def add_param_group(self, param_group: Group) -> None:
        """Adds a group of parameters. ValueError, with nothing changed: an option is wrong."""
        super().add_param_group(param_group)
        try:
            self._check(self.param_groups[-1])
        except ValueError:
            self.param_groups.pop()
            raise

    def _check(self, group: Group) -> None:
        for name in ("lr", "weight_decay", "eps"):
            if not float(group[name]) >= 0.0:
                raise ValueError(f"{name} is {group[name]!r}, but must be a number from 0 on")
        if not isinstance(group["adapt"], bool):
            raise ValueError(f"adapt is {group['adapt']!r}, but must be True or False")
        if group["foreach"] not in (None, True, False):
            raise ValueError(f"foreach is {group['foreach']!r}, but must be None, True or False")
        self._check_group(group)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for a copy or a pickle. The ranks of the copy's job agree on it anew."""
        return {**super().__getstate__(), "sharing": (self._trust.mode, self._trust.process_set)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Takes the state of a copied optimizer."""
        state = dict(state)
        sharing = state.pop("sharing", None)
        super().__setstate__(state)
        if sharing is not None:
            self._trust = TrustRatios(type(self).__name__, *sharing)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates all parameters that have gradients; returns the closure's loss, or None.

        Collective over the process set. Gradients must be equal on its ranks, as DistributedOptimizer makes
        them. ValueError, with nothing changed: gradients are sparse, or parameters neither fp32 nor fp64.
        MismatchError, on all ranks and with nothing changed: they have other optimizers or gradients.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        adapted = self._adapted()
        with self._trust.begin((tuple(adapted), tuple(map(id, adapted.values())), self._averagers())):
            parts = [self._part(number, group) for number, group in enumerate(self.param_groups)]
        self._trust.agree(self._description)
        for part in parts:
            for block in part.blocks():
                part.directions += self._directions(part.group, part.parameters[block])
        self._give_ratios(parts, list(adapted), list(adapted.values()))
        for part in parts:
            for block in part.blocks():
                self._apply(part.group, part.parameters[block], part.directions[block], part.ratios[block])
        return loss

    def norms_report(self) -> NormsReport:
        """Returns whether ranks share the norms, and the reason; ``str()`` of it is a sentence."""
        return self._trust.report

    # -- a step

    def _adapted(self) -> dict[str, torch.Tensor]:
        """Returns the layers that have ratios by name, in an order that is the same on all ranks."""
        own = {id(one) for group in self.param_groups if group["adapt"] for one in group["params"]}
        every = in_canonical_order(self)
        return {name: one for name, one in every.items() if one.requires_grad and id(one) in own}

    def _averagers(self) -> ProcessSet | None:
        """Returns the ranks over which gradients are averaged now: local SGD changes them in training."""
        strategy = attached.get(self)
        return None if strategy is None else strategy.gradient_set()

    def _part(self, number: int, group: Group) -> _Part:
        part = _Part(group)
        for index, parameter in enumerate(group["params"]):
            if parameter.grad is None:
                continue
            name = f"parameter {index} of group {number}, shape {tuple(parameter.shape)},"
            if parameter.dtype not in _DTYPES:
                raise ValueError(
                    f"{type(self).__name__}: {name} is {parameter.dtype}, in which small updates are lost: "
                    "give hvd.DistributedOptimizer master_weights=True, or keep the parameters in fp32"
                )
            if parameter.grad.layout != torch.strided:
                raise ValueError(
                    f"{type(self).__name__}: {name} has a sparse gradient, whose norm is not that of the "
                    "layer: make the layer with sparse=False, or give it to another optimizer"
                )
            part.parameters.append(parameter)
        part.ratios = [1.0] * len(part.parameters)
        return part

    def _give_ratios(
        self, parts: Sequence[_Part], names: Sequence[str], adapted: Sequence[torch.Tensor]
    ) -> None:
        places = {
            id(parameter): (part, index)
            for part in parts
            if part.group["adapt"]
            for index, parameter in enumerate(part.parameters)
        }

        def ratios(numbers: Sequence[int]) -> torch.Tensor:
            return self._ratios_of([places.get(id(adapted[number])) for number in numbers])

        layers = Layers(
            names,
            [parameter.numel() * parameter.element_size() for parameter in adapted],
            [id(parameter) in places for parameter in adapted],
            {parameter.device for parameter in adapted},
            ratios,
        )
        if not adapted:
            return
        for parameter, ratio in zip(adapted, self._trust.ratios(layers), strict=True):
            if id(parameter) in places:
                part, index = places[id(parameter)]
                part.ratios[index] = ratio

    def _ratios_of(self, places: Sequence[tuple[_Part, int] | None]) -> torch.Tensor:
        """Returns the ratios of the layers at these places, group by group; 1 for None."""
        found = torch.ones(len(places), dtype=torch.float64, device="cpu")
        has = [(number, *place) for number, place in enumerate(places) if place is not None]
        weights = norms([part.parameters[index] for _, part, index in has])
        directions = norms([part.directions[index] for _, part, index in has])
        for part in {id(part): part for _, part, _ in has}.values():
            own = [row for row, (_, one, _) in enumerate(has) if one is part]
            ratios = self._ratios(part.group, weights[own], directions[own])
            usable = (weights[own] != 0.0) & (directions[own] != 0.0)
            found[[has[row][0] for row in own]] = torch.where(usable, ratios, 1.0)
        return found

    def _description(self) -> Description:
        """Describes the optimizer: names and values that must be equal on all ranks."""
        found = [
            ("the class", type(self).__name__),
            ("distributed_norms", repr(self._trust.mode)),
            ("the number of groups", str(len(self.param_groups))),
        ]
        for number, group in enumerate(self.param_groups):
            for name in sorted(group.keys() - {"params", "param_names"}):
                value = group[name]
                value = float(value) if isinstance(value, torch.Tensor) else value
                found.append((f"{name} of group {number}", repr(value)))
        groups = {
            id(one): number for number, group in enumerate(self.param_groups) for one in group["params"]
        }
        for name, one in in_canonical_order(self).items():
            trained = "" if one.requires_grad else ", frozen"
            kind = f"{one.dtype} of shape {tuple(one.shape)} on {one.device.type}{trained}"
            found.append((f"parameter {name!r} of group {groups[id(one)]}", kind))
        return found


def check_fraction(name: str, value: float) -> None:
    """Raises ValueError if the value is no number from 0 to below 1."""
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{name} is {value!r}, but must be from 0 to below 1")
