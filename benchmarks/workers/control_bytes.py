"""Steps of an optimizer with ResNet-50's gradients, whose control messages are counted."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.shapes import resnet50

_WARM_UP = 10


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Count a step's messages, their bytes, and the operations that go by schedule."""
    hvd.init()
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in resnet50()]
    named = [(f"weight.{index}", parameter) for index, parameter in enumerate(parameters)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.0), named)

    def step() -> None:
        optimizer.zero_grad()
        loss = torch.stack([parameter.sum() for parameter in parameters]).sum()
        (loss * (hvd.rank() + 1)).backward()
        optimizer.step()
        mean = (hvd.size() + 1) / 2
        if any(parameter.grad is None or parameter.grad.flatten()[-1] != mean for parameter in parameters):
            raise RuntimeError("the mean of a gradient is wrong")

    for _ in range(_WARM_UP):
        step()
    before = hvd.stats()
    for _ in range(spec["steps"]):
        step()
    after = hvd.stats()
    hvd.shutdown()
    keys = ("messages_sent", "message_bytes", "locked_operations")
    counts = {key: (after[key] - before[key]) / spec["steps"] for key in keys}
    if (counts["locked_operations"] > 0) != spec["locks"]:
        raise RuntimeError(f"{counts['locked_operations']:g} operations of a step go by schedule")
    return {"gradients": len(parameters), **counts}


if __name__ == "__main__":
    measure.worker(main)
