"""Blocking sums of a few bytes between two nodes, locked and negotiated, and a ping-pong over a socket."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator
from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure
from roundelay.torch.process_sets import ProcessSet, own_process_set
from tests.rig.stream import Stream

_PORT = 7078


def _never_twice() -> Iterator[int]:
    """Yield 0, 1 and 2 so that no sequence comes twice in a row: no schedule is locked.

    They are the numbers of ones between the zeros of the Thue-Morse sequence.
    """
    ones = 0
    for number in itertools.count(1):
        if number.bit_count() % 2 == 1:
            ones += 1
        else:
            yield ones
            ones = 0


class _PingPong:
    """Sends as many bytes there and back. Ranks but the first of each node do nothing."""

    def __init__(self, address: str, size: int) -> None:
        self._out, self._in = bytes(size), bytearray(size)
        self._connection: socket.socket | None = None
        if hvd.local_rank() == 0:
            stream = (Stream.listen if hvd.cross_rank() == 0 else Stream.connect)(address, _PORT)
            self._connection = stream.connection

    def __call__(self) -> None:
        if self._connection is None:
            return
        for sends in (True, False) if hvd.cross_rank() == 0 else (False, True):
            if sends:
                self._connection.sendall(self._out)
            else:
                self._connection.recv_into(self._in, len(self._in), socket.MSG_WAITALL)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class _Sums:
    """Sums a tensor on a process set, under names that repeat or do not."""

    def __init__(self, size: int, process_set: ProcessSet, repeats: bool) -> None:
        self._tensor = torch.ones(size // 4)
        self._set = process_set
        self._names = itertools.repeat(0) if repeats else _never_twice()

    def __call__(self) -> None:
        self._tensor.fill_(1.0)
        name = f"small{next(self._names)}"
        hvd.allreduce_(self._tensor, name=name, op=hvd.Sum, process_set=self._set)
        if self._tensor[0] != hvd.size():
            raise RuntimeError(f"{name}: the sum is {self._tensor[0]}, and not {hvd.size()}")


def _burst(run: Callable[[], None], ranks: measure.Ranks, number: int) -> measure.Turn:
    def burst() -> None:
        for _ in range(number):
            run()

    def turn() -> list[float]:
        run()
        ranks.meet()
        return [measure.timed(burst) / number]

    return turn


def _counted(run: Callable[[], None], number: int) -> dict[str, float]:
    """Return this rank's control messages, and their bytes, for each call."""
    keys = ("messages_sent", "message_bytes")
    before = hvd.stats()
    for _ in range(number):
        run()
    after = hvd.stats()
    return {key: (after[key] - before[key]) / number for key in keys}


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure all sizes of the spec."""
    hvd.init()
    ranks = measure.Ranks(spec)
    other = own_process_set(list(range(hvd.size())), "negotiated")  # lanes of its own, for all ranks
    cells = []
    for size in spec["sizes"]:
        ping_pong = _PingPong(spec["address"], size)
        runs: dict[str, Callable[[], None]] = {
            "locked": _Sums(size, hvd.global_process_set, repeats=True),
            "negotiated": _Sums(size, other, repeats=False),
            "ping-pong": ping_pong,
        }
        turns = {name: _burst(run, ranks, spec["burst"]) for name, run in runs.items()}
        found = measure.take_turns(turns, spec["repetitions"], warmups=3)
        locked = hvd.stats()["locked_operations"]
        counted = {name: _counted(runs[name], 50) for name in ("locked", "negotiated")}
        locked = hvd.stats()["locked_operations"] - locked
        cells.append(
            {
                "bytes": size,
                "seconds": found.single(),
                "others": found.others,
                "counted": counted,
                "locked": locked,
            }
        )
        ping_pong.close()
    ranks.leave()
    return {"cells": cells}


if __name__ == "__main__":
    measure.worker(main)
