"""Steps of named gradients, negotiated and under a schedule lock, whose control messages are counted."""

from __future__ import annotations

import random
from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure

_ELEMENTS = 16


class _Steps:
    """Sums all gradients of a step. Steps of one order are locked, those of ever new orders are not."""

    def __init__(self, gradients: int, repeats: bool) -> None:
        self._names = [f"gradient.{index}" for index in range(gradients)]
        self._repeats = repeats
        self._orders = random.Random(0)  # the same on all ranks

    def __call__(self) -> None:
        order = list(self._names)
        if not self._repeats:
            self._orders.shuffle(order)
        handles = [hvd.allreduce_async_(torch.ones(_ELEMENTS), name=name, op=hvd.Sum) for name in order]
        for name, handle in zip(order, handles, strict=True):
            total = hvd.synchronize(handle)
            if not torch.equal(total, torch.full((_ELEMENTS,), float(hvd.size()))):
                raise RuntimeError(f"the sum of {name} is wrong")


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Count a step's messages and bytes, and the share of operations that went by schedule."""
    hvd.init()
    found: dict[str, Any] = {}
    keys = ("messages_sent", "message_bytes", "locked_operations")
    for way, repeats in (("negotiated", False), ("locked", True)):
        steps = _Steps(spec["gradients"], repeats)
        for _ in range(10):
            steps()
        before = hvd.stats()
        for _ in range(spec["steps"]):
            steps()
        after = hvd.stats()
        found[way] = {key: (after[key] - before[key]) / spec["steps"] for key in keys}
    hvd.shutdown()
    return found


if __name__ == "__main__":
    measure.worker(main)
