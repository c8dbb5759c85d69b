"""Parameters of equal shapes that ranks give to their optimizers in different orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import roundelay.torch as hvd
from roundelay.torch._internal.optimizer.distributed import wrapper_of

NAMES = ("a", "b", "c", "d")
FORMS = ("named_parameters", "param_names")  # who gets the names: DistributedOptimizer, or torch's optimizer
ORDERS = ("acbd", "bacd", "dcba")


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.5)


def on_odd_ranks(order: str) -> list[str]:
    """Returns this order on odd ranks, and NAMES on the others."""
    return list(order if hvd.rank() % 2 else NAMES)


def gradient(rank: int, step: int, name: str, like: torch.Tensor) -> torch.Tensor:
    """Returns small whole numbers, other ones for each argument."""
    seed = torch.Generator("cpu").manual_seed(1000 * rank + 10 * step + ord(name))
    return torch.randint(-8, 9, like.shape, generator=seed, device="cpu").to(like)


class Ordered:
    """A training whose optimizer has these parameters in this order on this rank.

    names: those that the parameters are called by, in place of their keys.
    """

    def __init__(
        self,
        order: Sequence[str],
        form: str = FORMS[0],
        make: Callable[[Any], torch.optim.Optimizer] = momentum,
        shape: tuple[int, ...] = (3,),
        groups: Any = None,
        **arguments: Any,
    ) -> None:
        self.parameters = {name: nn.Parameter(torch.ones(shape)) for name in NAMES}
        pairs = [(name, self.parameters[name]) for name in order]
        plain = make(pairs if form == "param_names" else [parameter for _, parameter in pairs])
        if isinstance(groups, tuple):
            groups = [[self.parameters[name] for name in group] for group in groups]
        self.optimizer: Any = hvd.DistributedOptimizer(
            plain, pairs if form == "named_parameters" else None, groups=groups, **arguments
        )
        self.steps = 0

    def run(self, steps: int) -> Ordered:
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.backward()
            self.optimizer.step()
            self.steps += 1
        return self

    def backward(self) -> None:
        terms = [
            (parameter * gradient(hvd.rank(), self.steps, name, parameter)).sum()
            for name, parameter in self.parameters.items()
            if parameter.requires_grad
        ]
        torch.stack(terms).sum().backward()

    def values(self) -> dict[str, list[float]]:
        return {name: parameter.tolist() for name, parameter in self.parameters.items()}

    def buckets(self) -> int:
        wrapper = wrapper_of(self.optimizer)
        assert wrapper is not None
        return wrapper.buckets()


def on_one_process(steps: int, ranks: int, period: int = 1) -> list[dict[str, list[float]]]:
    """Returns each rank's parameters after so many steps, which average every ``period`` steps."""
    every = [{name: nn.Parameter(torch.ones(3)) for name in NAMES} for _ in range(ranks)]
    optimizers = [momentum(list(one.values())) for one in every]
    for step in range(steps):
        for name in NAMES:
            given = [gradient(rank, step, name, every[rank][name]) for rank in range(ranks)]
            mean = torch.stack(given).mean(0)
            for rank in range(ranks):
                every[rank][name].grad = mean if period == 1 else given[rank]
        for optimizer in optimizers:
            optimizer.step()
        if period > 1 and (step + 1) % period == 0:
            for name in NAMES:
                mean = torch.stack([one[name].detach() for one in every]).mean(0)
                for one in every:
                    one[name].data.copy_(mean)
    return [{name: parameter.tolist() for name, parameter in one.items()} for one in every]
