"""DistributedOptimizer with a model compiled by torch.compile's default mode. All sums are exact."""

from __future__ import annotations

import copy
import shutil

import pytest
import torch

import roundelay.torch as hvd
from compiled_training import Training, trained
from ranks import Check, run_check

pytestmark = pytest.mark.slow


@pytest.mark.skipif(
    not shutil.which("c++") and not shutil.which("g++"), reason="torch.compile needs a compiler"
)
def test_compile(check: Check) -> None:
    run_check(check, 2)


def check_a_compiled_model() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4, bias=False), torch.nn.Linear(4, 2, bias=False))
    for parameter in model.parameters():
        parameter.data = torch.arange(parameter.numel(), dtype=torch.float32).reshape(parameter.shape) - 4
    alone = copy.deepcopy(model)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.25), op=hvd.Sum)
    plain = torch.optim.SGD(alone.parameters(), lr=0.25)
    compiled = torch.compile(model)
    for step in range(3):
        optimizer.zero_grad()
        plain.zero_grad()
        compiled(torch.full((1, 3), hvd.rank() + 1.0)).sum().backward()
        for rank in range(hvd.size()):
            alone(torch.full((1, 3), rank + 1.0)).sum().backward()
        optimizer.step()
        plain.step()
        for parameter, expected in zip(model.parameters(), alone.parameters(), strict=True):
            assert parameter.grad is not None
            assert expected.grad is not None
            assert torch.equal(parameter.grad, expected.grad), step
            assert torch.equal(parameter, expected), step


def check_compiled_steps() -> None:
    for part in ("step", "whole"):
        torch._dynamo.reset()
        found, expected = (trained(Training(op=hvd.Sum), part, backend) for backend in ("inductor", None))
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
            assert torch.equal(one, hvd.broadcast(one, 0))
