"""What submitting a gradient costs the thread that does it: a call, and the hook of DistributedOptimizer."""

from __future__ import annotations

import time
from typing import Any

import torch

from benchmarks import measure

_POOLED_FROM = 4  # steps: by then all ranks know the order of the gradients
_SMALL = 64  # elements


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


class _Backward:
    """From a backward's first gradient to its last, a gradient; what follows its last is not submitting.

    The layers are a chain, so that gradients come one after the other, in one order.
    """

    def __init__(self, number: int, wrapped: bool, ranks: measure.Ranks) -> None:
        self._ranks = ranks
        self._layers = [torch.nn.Parameter(torch.ones(_SMALL)) for _ in range(number)]
        self._optimizer = torch.optim.SGD(self._layers, lr=0.0)
        if wrapped:
            import roundelay.torch as hvd

            hvd.DistributedOptimizer(self._optimizer)
        self._begin = self._end = 0.0
        # Registered after the optimizer's own: so it runs after that. The last layer's gradient is first.
        self._layers[-1].register_post_accumulate_grad_hook(self._first_came)
        self._layers[0].register_post_accumulate_grad_hook(self._last_came)

    def _first_came(self, _: torch.Tensor) -> None:
        self._begin = time.perf_counter()

    def _last_came(self, _: torch.Tensor) -> None:
        self._end = time.perf_counter()

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
    """Measure calls, and a backward with and without hooks."""
    import roundelay.torch as hvd

    ranks = measure.Ranks(spec)
    hvd.init()
    number = spec["gradients"]
    turns: dict[str, measure.Turn] = {
        "call": _Calls(number, ranks),
        "hooked": _Backward(number, True, ranks),
        "plain": _Backward(number, False, ranks),
    }
    times = measure.take_turns(turns, spec["repetitions"], warmups=_POOLED_FROM)
    ranks.leave()
    return {"gradients": number, "seconds": {name: measure.summary(own) for name, own in times.items()}}


if __name__ == "__main__":
    measure.worker(main)
