"""Ten steps on several ranks equal ten steps of one process on the concatenated batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from ranks import Check, run_check

STEPS = 10
BATCH = 8  # over all ranks


@pytest.mark.parametrize("np", [2, 4])
def test_parity(np: int, check: Check) -> None:
    run_check(check, np)


class Transformer(nn.Module):
    """Two encoder layers over a small vocabulary; an unused head too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        layer = nn.TransformerEncoderLayer(16, 2, dim_feedforward=32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)
        self.unused = nn.Linear(16, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.encoder(self.embedding(tokens)).mean(dim=1))
        return logits


def _cnn() -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.GELU(), nn.Conv2d(4, 4, 3, stride=2), nn.GELU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(36, 5)), torch.randn(STEPS, BATCH, 1, 8, 8)


def _mlp() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 5)), torch.randn(STEPS, BATCH, 12)


def _transformer() -> tuple[nn.Module, torch.Tensor]:
    return Transformer(), torch.randint(0, 11, (STEPS, BATCH, 7))


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def _train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    for batch, target in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        loss_of(model(batch), target).backward()
        optimizer.step()


def _mine(data: torch.Tensor) -> torch.Tensor:
    share = BATCH // hvd.size()
    return data[:, hvd.rank() * share : (hvd.rank() + 1) * share]


def _compare(
    make: Callable[[], tuple[nn.Module, torch.Tensor]],
    dtype: torch.dtype,
    tolerance: float,
    **arguments: Any,
) -> None:
    torch.manual_seed(7)
    model, inputs = make()
    model = model.to(dtype)
    inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
    targets = torch.randint(0, 5, (STEPS, BATCH))
    alone = copy.deepcopy(model)
    _train(alone, _optimizer(alone), inputs, targets, nn.functional.cross_entropy)
    optimizer = hvd.DistributedOptimizer(_optimizer(model), model.named_parameters(), **arguments)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    _train(model, optimizer, _mine(inputs), _mine(targets), nn.functional.cross_entropy)
    for (name, parameter), expected in zip(model.named_parameters(), alone.parameters(), strict=True):
        error = (parameter - expected).norm() / expected.norm()
        assert error <= tolerance, (name, error)
        assert torch.equal(hvd.broadcast(parameter.detach(), 0), parameter), f"{name} differs between ranks"


def check_cnn() -> None:
    _compare(_cnn, torch.float64, 1e-9)
    _compare(_cnn, torch.float32, 1e-4)


def check_mlp() -> None:
    _compare(_mlp, torch.float64, 1e-9)
    _compare(_mlp, torch.float32, 1e-4)


def check_transformer() -> None:
    _compare(_transformer, torch.float64, 1e-9)
    _compare(_transformer, torch.float32, 1e-4)


def check_transformer_in_groups() -> None:
    """One group is never whole: its unused parameters get no gradient."""
    for groups in (1, 4):
        _compare(_transformer, torch.float64, 1e-9, groups=groups, gradient_predivide_factor=2.0)


def check_exact_sums_bit_for_bit() -> None:
    """Small integers and steps that are powers of two: every sum is exact in any order."""
    torch.manual_seed(5)
    model = nn.Linear(6, 3)
    for parameter in model.parameters():
        parameter.data = torch.randint(-2, 3, parameter.shape).float()
    alone = copy.deepcopy(model)
    inputs = torch.randint(-2, 3, (STEPS, BATCH, 6)).float()
    targets = torch.randint(-2, 3, (STEPS, BATCH, 3)).float()

    def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output * target).mean(dim=0).sum()  # linear: its gradients stay small dyadic numbers

    _train(alone, torch.optim.SGD(alone.parameters(), lr=0.5, momentum=0.5), inputs, targets, loss_of)
    plain = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    _train(model, hvd.DistributedOptimizer(plain), _mine(inputs), _mine(targets), loss_of)
    for parameter, expected in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.equal(parameter, expected)
        assert not torch.equal(parameter, parameter.round()), "the numbers are too plain to tell"
