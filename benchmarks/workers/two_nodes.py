"""A sum over the ranks of two nodes, and a plain TCP stream between them: the time, and the bytes sent."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.by_hand import ByHand
from benchmarks.contenders import Contender, Gloo, Mpi, Pool, Roundelay
from benchmarks.exact import Sum
from roundelay import _core
from tests.rig.stream import Stream

_PORT = 7077


class _Turn:
    """Measures one thing repeatedly, with the bytes that this rank's node sends and the ranks' CPU time."""

    def __init__(self, run: Callable[[], object], ranks: measure.Ranks) -> None:
        self._run, self._ranks = run, ranks
        self.sent: list[float] = []
        self.cpu: list[float] = []

    def __call__(self) -> list[float]:
        self._ranks.meet()
        before = measure.sent()
        self._ranks.meet()
        cpu = time.process_time()
        seconds = measure.timed(self._run)
        self.cpu.append(time.process_time() - cpu)
        self._ranks.meet()
        self.sent.append(measure.sent() - before)
        return [seconds]

    def sent_bytes(self, repetitions: int) -> int:
        """Return the median bytes of the node that sent more."""
        most = torch.tensor(self.sent[-repetitions:], dtype=torch.float64)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return int(statistics.median(most.tolist()))

    def cpu_seconds(self, repetitions: int) -> list[float]:
        """Return the CPU time of all ranks, by repetition."""
        total = torch.tensor(self.cpu[-repetitions:], dtype=torch.float64)
        dist.all_reduce(total)
        seconds: list[float] = total.tolist()
        return seconds


class _Allreduce(_Turn):
    """Sums a tensor whose sum is known."""

    def __init__(self, contender: Contender, size: int, ranks: measure.Ranks) -> None:
        self._data = Sum(size // 4, torch.float32, ranks.rank, ranks.size)
        self._tensor = contender.make(size // 4, torch.float32)
        self._name = contender.name
        super().__init__(contender.prepare(self._tensor), ranks)

    def __call__(self) -> list[float]:
        self._data.fill(self._tensor)
        seconds = super().__call__()
        self._data.check(self._tensor, self._name)
        return seconds


def _stream(address: str) -> Stream | None:
    """Connect the first ranks of the two nodes."""
    if hvd.local_rank() != 0:
        return None
    return Stream.listen(address, _PORT) if hvd.cross_rank() == 0 else Stream.connect(address, _PORT)


def _exchange(stream: Stream | None, size: int) -> None:
    if stream is not None:
        stream.exchange(size)


def _measure(
    size: int,
    contenders: list[Contender],
    stream: Stream | None,
    ranks: measure.Ranks,
    repetitions: int,
) -> dict[str, Any]:
    nodes = hvd.cross_size()
    least = 2 * (nodes - 1) * size // nodes  # the least that each node must send
    turns: dict[str, _Turn] = {one.name: _Allreduce(one, size, ranks) for one in contenders}
    turns["stream"] = _Turn(partial(_exchange, stream, least), ranks)
    found = measure.take_turns(dict[str, measure.Turn](turns), repetitions)
    sent = {name: turn.sent_bytes(repetitions) for name, turn in turns.items()}
    return {
        "bytes": size,
        "seconds": found.single(),
        "others": found.others,
        "sent": sent,
        "cpu": {name: turn.cpu_seconds(repetitions) for name, turn in turns.items()},
        "sent_ratio": sent["roundelay"] / sent["stream"],
    }


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all sizes of the spec."""
    ranks = measure.Ranks(spec)
    contenders: list[Contender] = [Roundelay(), Pool()]
    if spec["peers"]:
        contenders += [Gloo(), Mpi(), ByHand(spec["address"])]
    stream = _stream(spec["address"])
    cells = [_measure(size, contenders, stream, ranks, spec["repetitions"]) for size in spec["sizes"]]
    ranks.leave()
    return {"fabric": _core.transports()["fabric"], "cells": cells}


if __name__ == "__main__":
    measure.worker(main)
