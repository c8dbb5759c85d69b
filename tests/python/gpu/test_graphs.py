"""CUDA graphs: no collective is part of one, and a model whose forward and backward are graphs trains."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import gpu_device
import roundelay.torch as hvd
from ranks import Check, run_check

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("np", [1, 2])
def test_graphs(np: int, check: Check) -> None:
    run_check(check, np, env={"RANKS_DEVICE": gpu_device.NAME}, fresh=True)


def _goes_on() -> None:
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3


def check_a_collective_in_a_graph_is_refused_with_a_cure() -> None:
    tensor = torch.ones(4)
    _goes_on()
    calls = (hvd.allreduce_async, hvd.allgather_async, hvd.alltoall_async, hvd.reducescatter_async)
    for call in calls:
        with gpu_device.captured(), pytest.raises(ValueError, match="a graph is being captured") as raised:
            call(tensor)
        assert "torch.cuda.make_graphed_callables" in str(raised.value)
    _goes_on()


def check_a_training_step_in_a_graph_is_refused() -> None:
    if hvd.size() == 1:  # gradients of one rank are nobody else's
        return
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hvd.DistributedOptimizer(optimizer, model.named_parameters())
    inputs = torch.ones(3, 4)
    with gpu_device.captured():
        loss = model(inputs).sum()
        with pytest.raises(ValueError, match="a graph is being captured"):
            loss.backward()
    optimizer.zero_grad()
    _goes_on()


class _Replayed(torch.autograd.Function):
    """The gradients of a model and of its input, made in one node, as those of a graphed callable are."""

    @staticmethod
    def forward(ctx: Any, model: Callable[..., torch.Tensor], *given: torch.Tensor) -> torch.Tensor:
        inner = [one.detach().requires_grad_() for one in given]
        with torch.enable_grad():
            output = model(*inner)
        ctx.save_for_backward(*inner, output)
        return output.detach()

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        *inner, output = ctx.saved_tensors
        return (None, *torch.autograd.grad(output, inner, slopes))


def _graphed(model: nn.Module, sample: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns the model with a graph of its forward and of its backward."""
    if gpu_device.NAME == "cuda":
        made: Any = torch.cuda.make_graphed_callables(model, (sample,))
        return made  # type: ignore[no-any-return]
    names, parameters = zip(*model.named_parameters(), strict=True)

    def call(inputs: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = torch.func.functional_call(
            model, dict(zip(names, given, strict=True)), (inputs,)
        )
        return output

    # The warm-up and the capture take gradients without accumulating them.
    for _ in range(3):
        torch.autograd.grad(model(sample).sum(), parameters)
    return lambda inputs: _Replayed.apply(call, inputs, *parameters)  # type: ignore[no-any-return]


def _model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2)).double()


def _train(
    model: Callable[[torch.Tensor], torch.Tensor], plain: Any, batches: Sequence[torch.Tensor]
) -> None:
    for batch in batches:
        plain.zero_grad()
        model(batch).square().mean().backward()
        plain.step()


def check_graphed_callables_train_as_one_process() -> None:
    """The hooks are outside of the graphs: those of parameters run as gradients leave the graph's node."""
    alone = _model()
    together = copy.deepcopy(alone)
    torch.manual_seed(6)
    whole = [torch.randn(4 * hvd.size(), 6, dtype=torch.float64) for _ in range(6)]
    _train(alone, torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.5), whole)
    optimizer = torch.optim.SGD(together.parameters(), lr=0.1, momentum=0.5)
    hvd.DistributedOptimizer(optimizer, together.named_parameters())
    own = [batch[4 * hvd.rank() :][:4] for batch in whole]
    _train(_graphed(together, torch.zeros_like(own[0], requires_grad=True)), optimizer, own)
    for one, other in zip(alone.parameters(), together.parameters(), strict=True):
        torch.testing.assert_close(one.detach().cpu(), other.detach().cpu(), rtol=1e-12, atol=1e-12)
