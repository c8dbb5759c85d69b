"""Measures what techniques add to a training step on one GPU, and the bytes that they save.

`python -m benchmarks.gpu.techniques --device cuda` prints JSON. A single rank communicates with nobody, but
its optimizer works here as if there were two: what a technique adds is the time of its kernels, and of the
lane that enqueues them. Each step ends when the device is done. The bytes are the cost model's, for two
nodes.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
from torch import nn

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.gpu.measuring import begin, drain
from benchmarks.layers import resnet50
from benchmarks.models import Batch, Task, Transformer, mlp, task_loss
from roundelay import _model
from roundelay.plan import ways
from roundelay.plan.workload import Gradient, Workload

PLAIN = "none"  # a step without Roundelay
DENSE = "dense"
STRATEGIES = ("csc:keep=0.01", "topk:density=0.01,select=radix", "power_sgd:rank=2")
_WARMUPS = 5  # the first steps lay out the gradient pool
_SEED = 1


def _images() -> Task:
    def make(generator: torch.Generator) -> Batch:
        images = torch.randn(128, 3, 224, 224, generator=generator)
        return images, torch.randint(1000, (128,), generator=generator)

    model = resnet50().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Task(model, make)


def _language() -> Task:
    words, length = 50257, 512

    def make(generator: torch.Generator) -> Batch:
        tokens = torch.randint(words, (8, length + 1), generator=generator)
        return tokens[:, :-1], tokens[:, 1:].contiguous()

    return Task(Transformer(words, 768, 12), make)


MODELS: Mapping[str, Callable[[], Task]] = {"resnet50": _images, "gpt2-sized": _language, "mlp": mlp}


class Turn:
    """Steps with a model of its own."""

    def __init__(self, task: Task, way: str, device: torch.device) -> None:
        self._model: nn.Module = copy.deepcopy(task.model).to(device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01)
        if way != PLAIN:
            # An optimizer of a single rank leaves gradients alone.
            with mock.patch.object(type(hvd.global_process_set), "size", return_value=2):
                hvd.DistributedOptimizer(self._optimizer, self._model.named_parameters(), strategy=way)
        inputs, classes = task.batch(torch.Generator("cpu").manual_seed(_SEED))
        self._batch = inputs.to(device), classes.to(device)
        self._device = device

    def __call__(self) -> list[float]:
        """Return the seconds of a step that begins when the device is idle."""
        drain(self._device)
        return [measure.timed(self.step)]

    def step(self) -> None:
        """Take a step, and wait for the device."""
        self._optimizer.zero_grad()
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            loss = task_loss(self._model, *self._batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        drain(self._device)


def _made(task: Task, way: str, device: torch.device) -> tuple[Turn | None, str]:
    """Return the turn after its first steps, or why this device cannot take it."""
    try:
        turn = Turn(task, way, device)
        for _ in range(_WARMUPS):
            turn.step()
    except (RuntimeError, ValueError) as error:
        return None, str(error)
    return turn, ""


def sent_bytes(model: nn.Module, way: str) -> float:
    """Return the bytes of all messages of a step between two nodes of one rank each."""
    gradients = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    workload = Workload(
        "",
        tuple(
            Gradient(
                name, one.numel(), 0.0, (one.shape[0], one[0].numel()) if one.dim() > 1 else (1, one.numel())
            )
            for name, one in gradients
        ),
        forward=0.0,
        backward=0.0,
    )
    cluster = _model.Cluster([_model.Level(1, _model.Link(0.0, 1.0)), _model.Level(2, _model.Link(0.0, 1.0))])
    program = ways.parse(way, workload).way(cluster, workload.bytes, workload.element)
    return sum(stage.bytes for stage in program.stages if stage.kind == _model.Kind.LINK and stage.level == 1)


def measured(model: str, device: torch.device, repetitions: int) -> dict[str, Any]:
    """Measure all ways of a model in turns."""
    torch.manual_seed(_SEED)
    task = MODELS[model]()
    turns: dict[str, Turn] = {}
    missing: dict[str, str] = {}
    for way in (PLAIN, DENSE, *STRATEGIES):
        turn, why = _made(task, way, device)
        if turn is None:
            missing[way] = why
        else:
            turns[way] = turn
    times = measure.in_turn(turns, repetitions, 1)
    return {
        "model": model,
        "seconds": {way: measure.summary(own) for way, own in times.single().items()},
        "bytes": {way: sent_bytes(task.model, way) for way in (DENSE, *turns) if way != PLAIN},
        "missing": missing,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.techniques", description=__doc__)
    wanted = begin(parser, argv, 21, ("resnet50", "gpt2-sized"), MODELS)
    cells = [measured(model, wanted.device, wanted.repetitions) for model in wanted.models]
    print(json.dumps({"device": wanted.device.type, "cells": cells}))


if __name__ == "__main__":
    main()
