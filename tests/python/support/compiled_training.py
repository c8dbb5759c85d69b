"""A small training, of which torch.compile takes parts, beside the same training without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd

import roundelay.torch as hvd

STEPS = 6  # from the third one on gradients lie in a pool


class Backend:
    """A backend for torch.compile that notes the operations of the graphs it gets.

    name: of the backend that does the work.
    """

    def __init__(self, name: str) -> None:
        self._work: Any = torch._dynamo.lookup_backend(name)
        self.operations: list[str] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        calls = [node for node in graph.graph.nodes if node.op.startswith("call")]
        self.operations += [getattr(node.target, "__name__", str(node.target)) for node in calls]
        return self._work(graph, inputs)


class Pieces:
    """A backend for torch.compile that compiles nothing, and counts the graphs it gets.

    events: takes a line whenever a graph has run forward or backward.
    """

    def __init__(self, events: list[str]) -> None:
        self.pieces = 0
        self._events = events

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        piece, self.pieces = self.pieces, self.pieces + 1

        def noting(what: str) -> Callable[..., Any]:
            def compiler(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
                def run(*arguments: Any) -> Any:
                    result = graph(*arguments)
                    self._events.append(f"{what} {piece}")
                    return result

                return run

            return compiler

        return aot_autograd(fw_compiler=noting("forward"), bw_compiler=noting("backward"))(graph, inputs)


class Training:
    """Two layers whose gradients are whole numbers, and a wrapped optimizer.

    half: bfloat16 parameters with fp32 masters. arguments: DistributedOptimizer's.
    """

    def __init__(self, make: Any = torch.optim.SGD, half: bool = False, **arguments: Any) -> None:
        self.dtype = torch.bfloat16 if half else torch.float32
        layers = torch.nn.Linear(3, 4, bias=False), torch.nn.Linear(4, 2, bias=False)
        self.model = torch.nn.Sequential(*layers).to(self.dtype)
        for parameter in self.model.parameters():
            values = torch.arange(parameter.numel()).reshape(parameter.shape) - 4
            parameter.data = values.to(self.dtype)
        plain = make(self.model.parameters(), lr=0.25)
        self.optimizer: Any = hvd.DistributedOptimizer(plain, master_weights=half, **arguments)

    def loss(self, step: int, rank: int) -> torch.Tensor:
        given = torch.tensor([[1.0, 2.0, rank + 1.0]], dtype=self.dtype)
        total: torch.Tensor = self.model(given * (step + 1)).sum()
        return total

    def whole(self, step: int) -> None:
        """Takes a whole step: compiled as one function."""
        self.optimizer.zero_grad()
        self.loss(step, hvd.rank()).backward()
        self.optimizer.step()

    def parameters(self) -> list[torch.Tensor]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]


def trained(training: Training, part: str, backend: Callable[..., Any] | str | None) -> list[torch.Tensor]:
    """Returns the parameters after all steps. part: that of a step which is compiled with the backend."""

    def compiled(function: Any) -> Any:
        return function if backend is None else torch.compile(function, backend=backend, dynamic=False)

    optimizer = training.optimizer
    step, zero_grad, whole = optimizer.step, optimizer.zero_grad, training.whole
    if part == "step":
        step = compiled(step)
    if part == "zero_grad":
        zero_grad = compiled(zero_grad)
    if part == "whole":
        whole = compiled(whole)
    for number in range(STEPS):
        if part == "whole":
            whole(number % 2)  # a number makes Dynamo compile anew
            continue
        zero_grad()
        training.loss(number % 2, hvd.rank()).backward()
        step()
    return training.parameters()
