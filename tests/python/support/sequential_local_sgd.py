"""Local SGD as a sequential program in fp64: all ranks' models in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

Make = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


def nesterov(tensors: list[torch.Tensor]) -> torch.optim.Optimizer:
    """DiLoCo's outer optimizer."""
    return torch.optim.SGD(tensors, lr=0.7, momentum=0.9, nesterov=True)


def momentum(tensors: list[torch.Tensor]) -> torch.optim.Optimizer:
    """The inner optimizer."""
    return torch.optim.SGD(tensors, lr=0.1, momentum=0.5, weight_decay=0.01)


def make_model() -> nn.Module:
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).double()


def loss_of(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    """The loss of a rank's data in a step."""
    chance = torch.Generator("cpu").manual_seed(1000 * step + rank)
    inputs = torch.randn(3, 5, generator=chance, dtype=torch.float64, device="cpu")
    loss: torch.Tensor = model(inputs.to(torch.get_default_device())).square().mean()
    return loss


@dataclass
class Settings:
    """What LocalSGD is given. groups: the ranks that average their gradients in local steps."""

    averages: Sequence[int]  # the steps of averages, counted from 1
    groups: Sequence[Sequence[int]]
    post_local_after: int = 0
    outer: Make | None = None
    make: Make = momentum


def train(size: int, steps: int, settings: Settings) -> list[list[torch.Tensor]]:
    """Returns each rank's parameters after so many steps."""
    models = [make_model() for _ in range(size)]
    optimizers = [settings.make(list(model.parameters())) for model in models]
    anchors = [one.detach().clone() for one in models[0].parameters()]
    outer = settings.outer(anchors) if settings.outer is not None else None
    for step in range(1, steps + 1):
        for rank, model in enumerate(models):
            model.zero_grad()
            loss_of(model, rank, step - 1).backward()
        dense = step <= settings.post_local_after
        for group in [range(size)] if dense else settings.groups:
            average_gradients([models[rank] for rank in group])
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            if dense:
                for anchor, parameter in zip(anchors, models[0].parameters(), strict=True):
                    anchor.copy_(parameter)
            elif step in settings.averages:
                _average_parameters(models, anchors, outer)
    return [[one.detach() for one in model.parameters()] for model in models]


def average_gradients(models: Sequence[nn.Module]) -> None:
    """Gives all models the mean of their gradients."""
    for every in zip(*(model.parameters() for model in models), strict=True):
        mean = torch.stack([one.grad for one in every if one.grad is not None]).mean(0)
        for one in every:
            one.grad = mean.clone()


def _average_parameters(
    models: Sequence[nn.Module], anchors: list[torch.Tensor], outer: torch.optim.Optimizer | None
) -> None:
    for anchor, *every in zip(anchors, *(model.parameters() for model in models), strict=True):
        mean = torch.stack(list(every)).mean(0)
        if outer is None:
            anchor.copy_(mean)
        else:
            anchor.grad = anchor - mean
    if outer is not None:
        outer.step()
    for model in models:
        for parameter, anchor in zip(model.parameters(), anchors, strict=True):
            parameter.copy_(anchor)
