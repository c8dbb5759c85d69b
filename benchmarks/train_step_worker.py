"""One rank of `python -m benchmarks.train_step`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks import measure
from benchmarks.models import MODELS, Task, task_loss

_LEARNING_RATE = 0.01
_TOLERANCE = 1e-5  # relative to a tensor's largest value: the order of additions differs
Batch = tuple[torch.Tensor, torch.Tensor]


class _Turn:
    """One way to synchronise, training its own copy of the model on the same batches as the others."""

    def __init__(
        self, task: Task, wrap: Callable[[nn.Module, torch.optim.Optimizer], nn.Module], seed: int
    ) -> None:
        self.plain = copy.deepcopy(task.model)
        self._optimizer = torch.optim.SGD(self.plain.parameters(), lr=_LEARNING_RATE, momentum=0.9)
        self._model = wrap(self.plain, self._optimizer)
        self._batch = task.batch
        self._generator = torch.Generator().manual_seed(seed)
        self.synchronize: Callable[[], None] | None = None

    def __call__(self) -> float:
        batch = self._batch(self._generator)
        dist.barrier()
        return measure.timed(lambda: self._step(batch))

    def _step(self, batch: Batch) -> None:
        self._backward(batch)
        self._optimizer.step()

    def _backward(self, batch: Batch) -> None:
        self._optimizer.zero_grad()
        task_loss(self._model, *batch).backward()  # type: ignore[no-untyped-call]
        if self.synchronize is not None:
            self.synchronize()

    def gradients(self, model: nn.Module) -> list[torch.Tensor]:
        """The reduced gradients of this rank's next batch, with the weights of ``model``."""
        self.plain.load_state_dict(model.state_dict())
        self._backward(self._batch(self._generator))
        gradients = [parameter.grad for parameter in self.plain.parameters() if parameter.grad is not None]
        return [gradient.clone() for gradient in gradients]


def _alone(model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
    return model


def _roundelay(model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
    import roundelay.torch as hvd

    hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    return model


def _ddp(model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
    return DistributedDataParallel(model)


def _gloo(parameters: Iterable[nn.Parameter]) -> None:
    """Average every gradient after backward, all of them under way at once."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
    for work, gradient in zip(works, gradients, strict=True):
        work.wait()
        gradient.div_(dist.get_world_size())


def _check(turns: dict[str, _Turn], names: Iterable[str]) -> None:
    """From equal weights and batches all that synchronise must have equal gradients.

    Weights after many steps say nothing: where a ReLU is near 0, the last bit of a sum grows to percents.
    """
    model = copy.deepcopy(turns["ddp"].plain)
    expected = turns["ddp"].gradients(model)
    for name in names:
        for gradient, other in zip(turns[name].gradients(model), expected, strict=True):
            if float((gradient - other).abs().max()) > _TOLERANCE * float(other.abs().max()):
                raise RuntimeError(f"{name} has other gradients than DDP")


def _measure(model: str, spec: dict[str, Any], rank: int) -> dict[str, Any]:
    torch.manual_seed(1)
    task = MODELS[model]()
    seed = 100 + rank
    ways = {"none": _alone, "roundelay": _roundelay, "gloo": _alone, "ddp": _ddp}
    turns = {name: _Turn(task, wrap, seed) for name, wrap in ways.items()}
    plain = turns["gloo"]
    plain.synchronize = lambda: _gloo(plain.plain.parameters())
    times = measure.take_turns(turns, spec["repetitions"], warmups=4)
    _check(turns, ("roundelay", "gloo"))
    exposed = {name: [a - b for a, b in zip(own, times["none"], strict=True)] for name, own in times.items()}
    parameters = list(task.model.parameters())
    return {
        "model": model,
        "tensors": len(parameters),
        "bytes": sum(p.numel() * p.element_size() for p in parameters),
        "seconds": {name: measure.summary(own) for name, own in times.items()},
        "exposed": {name: measure.summary(own) for name, own in exposed.items() if name != "none"},
    }


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all models of the spec."""
    import roundelay.torch as hvd

    rank = measure.join(spec)
    hvd.init()
    cells = [_measure(model, spec, rank) for model in spec["models"]]
    dist.barrier()
    dist.destroy_process_group()
    return {"cells": cells}


if __name__ == "__main__":
    measure.worker(main)
