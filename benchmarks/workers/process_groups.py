"""One rank of `python -m benchmarks.process_groups`: small operations, and FSDP2's step, by backend."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # registers backend "fake"
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.models import MODELS, task_loss

BACKENDS = ("gloo", "roundelay")
_SMALL_CALLS = 200  # of a measurement
_BUCKET = 25 << 18  # elements
_LEARNING_RATE = 0.01


class _Sums:
    """A blocking sum, as many times as `calls`."""

    def __init__(self, call: Callable[[], object], calls: int, ranks: measure.Ranks) -> None:
        self._call, self._calls, self._ranks = call, calls, ranks

    def __call__(self) -> list[float]:
        self._ranks.meet()
        begin = time.perf_counter()
        for _ in range(self._calls):
            self._call()
        return [(time.perf_counter() - begin) / self._calls]


class _Step:
    """A step of FSDP2: each layer's weights are gathered twice, and gradients scattered.

    backend: None trains whole weights, without communication.
    """

    def __init__(self, model: str, backend: str | None, ranks: measure.Ranks) -> None:
        torch.manual_seed(1)
        task = MODELS[model]()
        self._ranks, self._draw = ranks, task.batch
        self._generator = torch.Generator().manual_seed(100 + ranks.rank)
        self.model = copy.deepcopy(task.model)
        if backend is not None:
            self._shard(backend)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=_LEARNING_RATE)

    def _shard(self, backend: str) -> None:
        mesh = DeviceMesh.from_group(dist.new_group(backend=backend), "cpu")
        for layer in self.model.children():
            if any(parameter.requires_grad for parameter in layer.parameters()):
                fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)

    def _step(self) -> None:
        self._optimizer.zero_grad()
        task_loss(self.model, *self._draw(self._generator)).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def __call__(self) -> list[float]:
        self._ranks.meet()
        return [measure.timed(self._step)]

    def weights(self) -> list[torch.Tensor]:
        """Return this rank's shards."""
        return [parameter.to_local().detach() for parameter in self.model.parameters()]  # type: ignore[attr-defined]

    def check(self, other: _Step) -> None:
        """Compare the gradients of a step from equal weights: over several steps roundings grow."""
        for mine, its in zip(self.weights(), other.weights(), strict=True):
            mine.copy_(its)
        self._step()
        other._step()
        for mine, its in zip(self._gradients(), other._gradients(), strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-6)

    def _gradients(self) -> list[torch.Tensor]:
        return [parameter.grad.to_local() for parameter in self.model.parameters()]  # type: ignore[union-attr]


def _small(ranks: measure.Ranks, repetitions: int) -> dict[str, Any]:
    """Measure blocking sums of 64 floats."""
    tensor = torch.ones(64)
    turns: dict[str, measure.Turn] = {}
    for backend in (*BACKENDS, "fake"):  # which does nothing: what torch.distributed takes by itself
        call = partial(dist.all_reduce, tensor, group=dist.new_group(backend=backend))
        turns[backend] = _Sums(call, _SMALL_CALLS, ranks)
    turns["hvd"] = _Sums(lambda: hvd.allreduce_(tensor, name="small", op=hvd.Sum), _SMALL_CALLS, ranks)
    found = measure.take_turns(turns, repetitions, warmups=2)
    return {"seconds": found.single(), "others": found.others}


def _buckets(ranks: measure.Ranks, repetitions: int) -> dict[str, Any]:
    """Measure blocking sums of 25 MiB, in ordinary memory and where DDP's buckets lie."""
    groups = {backend: dist.new_group(backend=backend) for backend in BACKENDS}
    own = groups["roundelay"]._get_backend(torch.device("cpu"))
    lent: torch.Tensor = own.allocate_tensor(_BUCKET, dtype=torch.float32, device=torch.device("cpu"))
    turns: dict[str, measure.Turn] = {}
    for name, tensor in (("gloo", torch.empty(_BUCKET)), ("roundelay", torch.empty(_BUCKET)), ("lent", lent)):
        call = partial(dist.all_reduce, tensor, group=groups.get(name, groups["roundelay"]))
        tensor.fill_(1)
        call()
        assert tensor.unique().tolist() == [hvd.size()], name
        turns[name] = _Sums(call, 1, ranks)
    found = measure.take_turns(turns, repetitions, warmups=2)
    return {"seconds": found.single(), "others": found.others}


def _sharded(model: str, ranks: measure.Ranks, repetitions: int) -> dict[str, Any]:
    sharded = {backend: _Step(model, backend, ranks) for backend in BACKENDS}
    turns: dict[str, measure.Turn] = {"none": _Step(model, None, ranks), **sharded}
    sharded["roundelay"].check(sharded["gloo"])
    found = measure.take_turns(turns, repetitions, warmups=2)
    sharded["roundelay"].check(sharded["gloo"])
    return {"model": model, "seconds": found.single(), "others": found.others}


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure the small sums, then FSDP2's steps of each model."""
    ranks = measure.Ranks(spec)
    hvd.init()
    small, buckets = _small(ranks, spec["repetitions"]), _buckets(ranks, spec["repetitions"])
    sharded = [_sharded(model, ranks, spec["repetitions"]) for model in spec["sharded"]]
    ranks.leave()
    return {"small": small, "buckets": buckets, "sharded": sharded}


if __name__ == "__main__":
    measure.worker(main)
