"""Trains models whose gradients are whole numbers, so that sums are exact, and counts what arrives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from roundelay.torch import ddp

Loss = Callable[[torch.Tensor], torch.Tensor]
SHAPES = [(16, 64), (512,), (32, 32), (128,)]


def zeros() -> list[torch.Tensor]:
    """Returns zeros of all shapes; one tensor lies transposed in memory."""
    every = [torch.zeros(shape) for shape in SHAPES]
    every[2] = every[2].t()
    return every


class Linear(nn.Module):
    """A loss whose gradients are the coefficients. Parameters without any are not used."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(one) for one in zeros())

    def forward(self, coefficients: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Returns the loss."""
        pairs = zip(self.weights, coefficients, strict=True)
        terms = [(weight * one).sum() for weight, one in pairs if one is not None]
        return torch.stack(terms).sum()


def coefficients(step: int, without: Sequence[int] = ()) -> list[torch.Tensor | None]:
    """Returns whole numbers of this rank and step; None for the parameters `without`."""
    values = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    every = [torch.randint(-9, 10, shape, generator=values).float() for shape in SHAPES]
    return [None if number in without else one for number, one in enumerate(every)]


class Ledger:
    """A DDP model with a hook, the sums of this rank's gradients, and those of the results."""

    def __init__(self, strategy: str, **options: Any) -> None:
        self.kind = strategy.partition(":")[0]
        self.module = Linear()
        self.model = DistributedDataParallel(self.module, bucket_cap_mb=0.004, **options)
        self.state, average = ddp.hook(strategy, named_parameters=self.module.named_parameters())
        self.model.register_comm_hook(self.state, average)
        self.given = [torch.zeros(shape) for shape in SHAPES]
        self.got = [torch.zeros(shape) for shape in SHAPES]

    def backward(self, step: int, without: Sequence[int] = (), loss: Loss = lambda loss: loss) -> None:
        """Adds this rank's gradients of the step. loss: makes the loss of which backward() is called."""
        mine = coefficients(step, without)
        loss(self.model(mine)).backward()
        for sum_of, one in zip(self.given, mine, strict=True):
            if one is not None:
                sum_of += one

    def take(self) -> None:
        """Takes the results, and clears them."""
        for sum_of, parameter in zip(self.got, self.module.parameters(), strict=True):
            if parameter.grad is not None:
                sum_of += parameter.grad
        self.module.zero_grad()

    def step(self, step: int, without: Sequence[int] = ()) -> None:
        """Carries out a whole step."""
        self.backward(step, without)
        self.take()

    def kept(self, scale: float = 1.0) -> list[torch.Tensor]:
        """Returns what this rank keeps back."""
        kept = self.state.state_dict()["kept"]
        names = [name for name, _ in self.module.named_parameters()]
        zeros = [torch.zeros(shape) for shape in SHAPES]
        return [kept.get(name, zero) / scale for name, zero in zip(names, zeros, strict=True)]

    def check(self, scale: float = 1.0) -> None:
        """Checks that all gradients have arrived, or are kept back, once. Some strategies round."""
        for given, got, kept in zip(self.given, self.got, self.kept(scale), strict=True):
            want, still = given.clone(), kept.clone()
            dist.all_reduce(want)
            dist.all_reduce(still)
            have = got * dist.get_world_size() + still
            if self.kind not in {"power_sgd", "quantised"}:
                assert torch.equal(have, want), (have - want).abs().max()
            else:
                torch.testing.assert_close(have, want, atol=1e-3, rtol=1e-4)

    def keeps_something(self) -> bool:
        """Returns whether this rank keeps anything back."""
        return any(bool(one.any()) for one in self.kept())
