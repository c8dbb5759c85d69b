"""One rank of `python -m benchmarks.train_step`."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from benchmarks import measure
from benchmarks.bare import floor
from benchmarks.models import MODELS, Task, task_loss

_LEARNING_RATE = 0.01
_TOLERANCE = 1e-5  # relative to a tensor's largest value, because the order of additions differs
_HALF_TOLERANCE = 0.02  # likewise where gradients travel with 8 bits, and sums between nodes are rounded
_SEED = 100
Batch = tuple[torch.Tensor, torch.Tensor]
Wrap = Callable[[nn.Module, torch.optim.Optimizer], nn.Module]


class _Turn:
    """One way to synchronise. It trains its own copy of the model with the same batches as the others."""

    def __init__(self, task: Task, wrap: Wrap, ranks: measure.Ranks) -> None:
        self.plain = copy.deepcopy(task.model)
        self._optimizer = torch.optim.SGD(self.plain.parameters(), lr=_LEARNING_RATE)
        self._model = wrap(self.plain, self._optimizer)
        self._batch = task.batch
        self._ranks = ranks
        self._generator = torch.Generator().manual_seed(_SEED + ranks.rank)
        self.synchronize: Callable[[], None] | None = None
        self._cpu: list[float] = []
        self._under_way: list[float] = []

    def __call__(self) -> list[float]:
        batch = self._batch(self._generator)
        self._ranks.meet()
        begin, under_way = time.process_time(), _under_way()
        seconds = measure.timed(lambda: self._step(batch))
        self._cpu.append(time.process_time() - begin)
        self._under_way.append(_under_way() - under_way)
        return [seconds]

    def under_way(self, repetitions: int) -> list[float]:
        """Return the seconds of each of the last steps in which Roundelay had an operation under way."""
        return self._under_way[-repetitions:]

    def cpu(self, repetitions: int) -> list[float]:
        """Return the CPU seconds of each of the last steps, all threads included: the mean over ranks."""
        spent = torch.tensor(self._cpu[-repetitions:], dtype=torch.float64)
        dist.all_reduce(spent)
        mean: list[float] = spent.div_(self._ranks.size).tolist()
        return mean

    def _step(self, batch: Batch) -> None:
        self._backward(batch)
        self._optimizer.step()

    def _backward(self, batch: Batch) -> None:
        self._optimizer.zero_grad()
        task_loss(self._model, *batch).backward()  # type: ignore[no-untyped-call]
        if self.synchronize is not None:
            self.synchronize()

    def gradients(self, model: nn.Module) -> list[torch.Tensor]:
        """Return the reduced gradients of this rank's next batch, with the weights of ``model``."""
        self.plain.load_state_dict(model.state_dict())
        self._backward(self._batch(self._generator))
        gradients = [parameter.grad for parameter in self.plain.parameters() if parameter.grad is not None]
        return [gradient.clone() for gradient in gradients]


def _under_way() -> float:
    import roundelay.torch as hvd

    return hvd.stats()["under_way_ns"] * 1e-9


def _alone(model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
    return model


def _roundelay(wire: str = "none") -> Wrap:
    def wrap(model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        import roundelay.torch as hvd

        compression = getattr(hvd.Compression, wire)
        hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression=compression)
        return model

    return wrap


def _ddp(bucket_mib: int, half: bool = False) -> Wrap:
    """DDP's best settings: no copy out of buckets, a static graph, no broadcast of buffers."""

    def wrap(model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        parallel = DistributedDataParallel(
            model,
            bucket_cap_mb=bucket_mib,
            gradient_as_bucket_view=True,
            static_graph=True,
            forward_sync_buffers=False,
        )
        if half:
            parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
        return parallel

    return wrap


def _gloo(parameters: Iterable[nn.Parameter]) -> None:
    """Average every gradient after backward, all at the same time."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
    for work, gradient in zip(works, gradients, strict=True):
        work.wait()
        gradient.div_(dist.get_world_size())


def _check(turns: dict[str, _Turn], names: Iterable[str]) -> None:
    """Check that all ways give equal gradients from equal weights and batches.

    Weights after many steps would not be comparable: near the 0 of a ReLU, the last bit of a sum grows to
    percents.
    """
    model = copy.deepcopy(turns["ddp"].plain)
    expected = turns["ddp"].gradients(model)
    for name in names:
        for gradient, other in zip(turns[name].gradients(model), expected, strict=True):
            tolerance = _HALF_TOLERANCE if "bf16" in name else _TOLERANCE
            if float((gradient - other).abs().max()) > tolerance * float(other.abs().max()):
                raise RuntimeError(f"{name} has other gradients than DDP")


_UNCHECKED = ("none", "ddp", "ddp fp16")  # fp16 loses the least gradients
# "ddp" has DDP's default size of buckets
_WAYS: dict[str, Wrap] = {
    "none": _alone,
    "roundelay": _roundelay(),
    "roundelay bf16": _roundelay("bf16"),
    "gloo": _alone,
    "ddp": _ddp(25),
    "ddp 5 MiB": _ddp(5),
    "ddp 100 MiB": _ddp(100),
    "ddp fp16": _ddp(25, half=True),
}


def _measure(model: str, spec: dict[str, Any], ranks: measure.Ranks) -> dict[str, Any]:
    torch.manual_seed(1)
    task = MODELS[model]()
    turns = {name: _Turn(task, _WAYS[name], ranks) for name in spec["ways"]}
    if "gloo" in turns:
        plain = turns["gloo"]
        plain.synchronize = lambda: _gloo(plain.plain.parameters())
    parameters = list(task.model.parameters())
    size = sum(p.numel() * p.element_size() for p in parameters)
    repetitions = spec["repetitions"]
    with floor(size, spec, ranks) as bare:
        found = measure.take_turns({**turns, **bare}, repetitions, warmups=4)
    cpu = {name: turn.cpu(repetitions) for name, turn in turns.items()}
    _check(turns, (name for name in turns if name not in _UNCHECKED))
    return {
        "model": model,
        "tensors": len(parameters),
        "bytes": size,
        "seconds": found.single(),
        "cpu": cpu,
        "under_way": {name: turn.under_way(repetitions) for name, turn in turns.items()},
        "others": found.others,
    }


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all models of the spec, each in all its ways; "none" and "ddp" are always among them."""
    import roundelay.torch as hvd

    ranks = measure.Ranks(spec)
    hvd.init()
    cells = [_measure(model, spec, ranks) for model in spec["models"]]
    ranks.leave()
    return {"cells": cells}


if __name__ == "__main__":
    measure.worker(main)
