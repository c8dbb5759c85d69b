"""Measures how long a step keeps the host: with DistributedOptimizer, DDP and neither, at size 1, in turns.

`python -m benchmarks.gpu.host_time --device cuda` prints JSON. The device is idle when a step begins, and is
not waited for when it ends: a step that waits for it is a long one.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks import measure
from benchmarks.gpu.measuring import begin, drain
from benchmarks.models import MODELS, Task, task_loss

_GROUP = {"cuda": "nccl", "cpu": "gloo"}
_WARMUPS = 5
_SEED = 1


def _alone(model: nn.Module, _: torch.optim.Optimizer) -> nn.Module:
    return model


def _roundelay(model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
    import roundelay.torch as hvd

    hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    return model


def _ddp(model: nn.Module, _: torch.optim.Optimizer) -> nn.Module:
    return DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)


_WAYS = {"none": _alone, "roundelay": _roundelay, "ddp": _ddp}


class _Turn:
    """Steps with a model of its own."""

    def __init__(self, task: Task, way: str, device: torch.device) -> None:
        plain = copy.deepcopy(task.model).to(device)
        self._optimizer = torch.optim.SGD(plain.parameters(), lr=0.01)
        self._model = _WAYS[way](plain, self._optimizer)
        inputs, classes = task.batch(torch.Generator().manual_seed(_SEED))
        self._batch = inputs.to(device), classes.to(device)
        self._device = device

    def __call__(self) -> list[float]:
        drain(self._device)
        seconds = measure.timed(self._step)
        drain(self._device)
        return [seconds]

    def _step(self) -> None:
        self._optimizer.zero_grad()
        task_loss(self._model, *self._batch).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()


def _measure(model: str, ways: Sequence[str], device: torch.device, repetitions: int) -> dict[str, Any]:
    torch.manual_seed(_SEED)
    task = MODELS[model]()
    turns: dict[str, measure.Turn] = {way: _Turn(task, way, device) for way in ways}
    times = measure.in_turn(turns, repetitions, _WARMUPS)
    return {
        "model": model,
        "tensors": len(list(task.model.parameters())),
        "seconds": {way: measure.summary(own) for way, own in times.single().items()},
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.host_time", description=__doc__)
    wanted = begin(parser, argv, 51, ("mlp", "transformer"), MODELS)
    kind = wanted.device.type
    group = _GROUP.get(kind)
    ways = [way for way in _WAYS if way != "ddp" or group]
    with tempfile.TemporaryDirectory(prefix="roundelay-bench-") as folder:
        if group:
            store = f"file://{Path(folder) / 'store'}"
            dist.init_process_group(group, init_method=store, rank=0, world_size=1)
        cells = [_measure(model, ways, wanted.device, wanted.repetitions) for model in wanted.models]
        if group:
            dist.destroy_process_group()
    found: dict[str, Any] = {"device": kind, "cells": cells}
    if not group:
        found["missing"] = f"PyTorch has no process group for {kind}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
