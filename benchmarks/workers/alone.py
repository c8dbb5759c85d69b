"""One library alone in its processes: the memory of a training step's gradients, and the cost of idling."""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks import measure
from benchmarks.shapes import resnet50

_STEPS = 20  # after these, resident memory stays the same
_SETTLE_S = 0.5  # the time for messages after the last operation
Step = Callable[[], object]


class _Sum(nn.Module):
    """Make parameters shaped like ResNet-50's. Their gradients take almost no other memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ParameterList(nn.Parameter(torch.ones(shape)) for shape in resnet50())

    def forward(self, factor: torch.Tensor) -> torch.Tensor:
        return torch.stack([layer.sum() for layer in self.layers]).sum() * factor


def _stepping(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(())).backward()
        optimizer.step()

    return step


def _none(model: nn.Module, optimizer: torch.optim.Optimizer, spec: dict[str, Any]) -> Step:
    return _stepping(model, optimizer)


def _roundelay(model: nn.Module, optimizer: torch.optim.Optimizer, spec: dict[str, Any]) -> Step:
    import roundelay.torch as hvd

    hvd.init()
    return _stepping(model, hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters()))


def _gloo(model: nn.Module, optimizer: torch.optim.Optimizer, spec: dict[str, Any]) -> Step:
    measure.Ranks(spec)
    return _stepping(DistributedDataParallel(model, gradient_as_bucket_view=True), optimizer)


def _mpi(model: nn.Module, optimizer: torch.optim.Optimizer, spec: dict[str, Any]) -> Step:
    """Sum each gradient in place."""
    from mpi4py import MPI

    plain = _stepping(model, optimizer)

    def step() -> None:
        plain()
        for parameter in model.parameters():
            assert parameter.grad is not None
            MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, [parameter.grad.numpy(), MPI.FLOAT])

    return step


_LIBRARIES = {"none": _none, "roundelay": _roundelay, "gloo": _gloo, "mpi": _mpi}


def _memory() -> int:
    """Return the resident bytes of this process. A page that n processes share counts 1/n."""
    found = re.search(r"^Pss:\s+(\d+) kB$", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) << 10


def _messages(library: str) -> int | None:
    if library != "roundelay":
        return None
    import roundelay.torch as hvd

    return hvd.stats()["messages_sent"]


def _idle(library: str, seconds: float) -> dict[str, Any]:
    time.sleep(_SETTLE_S)
    messages = _messages(library)
    before = resource.getrusage(resource.RUSAGE_SELF)
    begin, cpu = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - begin
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before.ru_nvcsw
    sent = _messages(library)
    return {
        "share": cpu / wall,
        "wake_ups": (switches - 1) / wall,  # without this thread's own, at the end of its sleep
        "messages": None if sent is None or messages is None else sent - messages,
    }


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Train some steps, then do nothing."""
    torch.set_num_threads(1)
    model = _Sum()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    before = _memory()
    step = _LIBRARIES[spec["library"]](model, optimizer, spec)
    for _ in range(_STEPS):
        step()
    found = {
        "memory": _memory() - before,
        "gradients": sum(parameter.nbytes for parameter in model.parameters()),
        "idle": _idle(spec["library"], spec["seconds"]),
    }
    if dist.is_initialized():
        dist.destroy_process_group()
    return found


if __name__ == "__main__":
    measure.worker(main)
