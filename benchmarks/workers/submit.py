"""The cost of submitting a gradient for the submitting thread: a call, and DistributedOptimizer's hook."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import torch

from benchmarks import measure

_POOLED_FROM = 4  # steps; by then all ranks know the order of the gradients
_SMALL = 64  # elements
_CLOCKS = {
    "wall": time.perf_counter,
    "thread": time.thread_time,
}  # the latter: the training thread's CPU time
Wrap = Callable[[torch.optim.Optimizer, Sequence[torch.nn.Parameter]], None]


class _Calls:
    """`allreduce_async_` of small tensors in a row."""

    def __init__(self, number: int, ranks: measure.Ranks) -> None:
        self._ranks = ranks
        self._named = [(torch.ones(_SMALL), f"submit.{index}") for index in range(number)]

    def __call__(self) -> list[float]:
        import roundelay.torch as hvd

        self._ranks.meet()
        begin = time.perf_counter()
        handles = [hvd.allreduce_async_(tensor, name=name) for tensor, name in self._named]
        end = time.perf_counter()
        for handle in handles:
            hvd.synchronize(handle)
        return [(end - begin) / len(handles)]


class _Queue:
    """The least work of a call: it puts each tensor into a queue, in C, for nobody."""

    def __init__(self, number: int, ranks: measure.Ranks) -> None:
        self._ranks = ranks
        self._tensors = [torch.ones(_SMALL) for _ in range(number)]

    def __call__(self) -> list[float]:
        queue: SimpleQueue[torch.Tensor] = SimpleQueue()
        self._ranks.meet()
        begin = time.perf_counter()
        for tensor in self._tensors:
            queue.put(tensor)
        return [(time.perf_counter() - begin) / len(self._tensors)]


def _synchronised(wire: str = "none") -> Wrap:
    def wrap(optimizer: torch.optim.Optimizer, layers: Sequence[torch.nn.Parameter]) -> None:
        import roundelay.torch as hvd

        hvd.DistributedOptimizer(optimizer, compression=getattr(hvd.Compression, wire))

    return wrap


def _empty_hooks(optimizer: torch.optim.Optimizer, layers: Sequence[torch.nn.Parameter]) -> None:
    """Give each parameter an empty hook, in C: the time that PyTorch takes to call one."""
    for layer in layers:
        layer.register_post_accumulate_grad_hook(deque(maxlen=0).append)


def _nothing(optimizer: torch.optim.Optimizer, layers: Sequence[torch.nn.Parameter]) -> None:
    pass


class _Backward:
    """The time per gradient from a backward's first gradient to its last. Later work is not submitting.

    The layers form a chain, so that gradients come one by one in a fixed order.
    """

    def __init__(self, number: int, wrap: Wrap, ranks: measure.Ranks, clock: Callable[[], float]) -> None:
        self._ranks, self._clock = ranks, clock
        self._layers = [torch.nn.Parameter(torch.ones(_SMALL)) for _ in range(number)]
        self._optimizer = torch.optim.SGD(self._layers, lr=0.0)
        wrap(self._optimizer, self._layers)
        self._begin = self._end = 0.0
        # Registered after the optimizer's hook, so it runs after that. The last layer's gradient comes first.
        self._layers[-1].register_post_accumulate_grad_hook(self._first_came)
        self._layers[0].register_post_accumulate_grad_hook(self._last_came)

    def _first_came(self, _: torch.Tensor) -> None:
        self._begin = self._clock()

    def _last_came(self, _: torch.Tensor) -> None:
        self._end = self._clock()

    def __call__(self) -> list[float]:
        values = torch.ones(_SMALL)
        for layer in self._layers:
            values = values * layer
        loss = values.sum()
        self._ranks.meet()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._optimizer.zero_grad()
        return [(self._end - self._begin) / (len(self._layers) - 1)]


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure calls, a backward with and without hooks, and the least work of both."""
    import roundelay.torch as hvd

    ranks = measure.Ranks(spec)
    hvd.init()
    number = spec["gradients"]
    clock = _CLOCKS[spec.get("clock", "wall")]
    turns: dict[str, measure.Turn] = {
        "call": _Calls(number, ranks),
        "queue": _Queue(number, ranks),
        "hooked": _Backward(number, _synchronised(), ranks, clock),
        "hooked bf16": _Backward(number, _synchronised("bf16"), ranks, clock),
        "empty hooks": _Backward(number, _empty_hooks, ranks, clock),
        "plain": _Backward(number, _nothing, ranks, clock),
    }
    found = measure.take_turns(turns, spec["repetitions"], warmups=_POOLED_FROM)
    ranks.leave()
    return {"gradients": number, "seconds": found.single(), "others": found.others}


if __name__ == "__main__":
    measure.worker(main)
