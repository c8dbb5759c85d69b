"""Half models, optimizers with fp32 masters, and the same in plain PyTorch, for the tests of masters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import roundelay.torch as hvd
from random_values import normal

HALVES = (torch.bfloat16, torch.float16)
Make = Callable[[Any], torch.optim.Optimizer]
KINDS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
}


def make_model(dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(dtype)


def make_batches(dtype: torch.dtype, number: int, seed: int = 5) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [normal(generator, 4, 6).to(dtype) for _ in range(number)]


def masters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def loss_of(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(batch).float().square().mean()
    return loss


def train(model: torch.nn.Module, optimizer: Any, batches: list[torch.Tensor]) -> None:
    for batch in batches:

        def closure(batch: torch.Tensor = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()


class ByHand:
    """The reference: a half model and an optimizer of fp32 masters, in plain PyTorch."""

    def __init__(self, model: torch.nn.Module, make: Make) -> None:
        self.model = model
        self.masters = [torch.nn.Parameter(p.detach().float()) for p in model.parameters()]
        self.optimizer = make(self.masters)

    def write_back(self) -> None:
        with torch.no_grad():
            for parameter, master in zip(self.model.parameters(), self.masters, strict=True):
                parameter.copy_(master)

    def train(self, batches: list[torch.Tensor]) -> None:
        for batch in batches:

            def closure(batch: torch.Tensor = batch) -> torch.Tensor:
                self.write_back()
                self.model.zero_grad()
                loss = loss_of(self.model, batch)
                loss.backward()
                for parameter, master in zip(self.model.parameters(), self.masters, strict=True):
                    assert parameter.grad is not None
                    master.grad = parameter.grad.float()
                return loss

            if isinstance(self.optimizer, torch.optim.LBFGS):
                self.optimizer.step(closure)
            else:
                closure()
                self.optimizer.step()
            self.write_back()


def make_wrapped(
    dtype: torch.dtype = torch.bfloat16, make: Make = KINDS["sgd"]
) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = make_model(dtype)
    optimizer = make(model.parameters())
    return model, hvd.DistributedOptimizer(optimizer, model.named_parameters(), master_weights=True)


def assert_equal(ours: Any, expected: Any) -> None:
    for mine, other in zip(ours, expected, strict=True):
        assert mine.dtype == other.dtype
        assert torch.equal(mine, other)
