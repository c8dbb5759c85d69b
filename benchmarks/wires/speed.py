"""Times and CPU times of transfers between two ends, the prototypes in turn."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import summary
from benchmarks.quiet import Watch, share_of_others
from benchmarks.wires.programs import End, ends
from tests.rig import Rig

MBIT = (1_000, 10_000, 25_000)
_MIB = 1 << 20
AT_ONCE = {4 << 10: 100, _MIB: 10, 25 * _MIB: 1, 100 * _MIB: 1}  # transfers of a turn, by bytes
KINDS = ("one_way", "ping_pong")
_WARMUPS = 1

Cell = dict[str, Any]


def _turn(pair: tuple[End, End], kind: str, size: int) -> tuple[list[float], list[float]]:
    """Return wall and CPU seconds of transfers; both processes' CPU."""
    first, second = pair
    second.post(f"measure {kind} second {size} {AT_ONCE[size]}")
    said = first.ask(f"measure {kind} first {size} {AT_ONCE[size]}"), second.answer()
    if not all(one and not one["error"] for one in said):
        raise RuntimeError(f"a transfer failed: {said}")
    return said[0]["wall"], [sum(both) for both in zip(*(one["cpu"] for one in said), strict=True)]


def _part(pair: tuple[End, End]) -> None:
    """Give each end a core of its own, where there are two: the scheduler puts them on one or on two."""
    cores = sorted(os.sched_getaffinity(0))
    for end, core in zip(pair, (cores[0], cores[-1]), strict=True):
        os.sched_setaffinity(end.pid, {core})


def _cell(pairs: Mapping[str, tuple[End, End]], kind: str, size: int, rounds: int) -> Cell:
    ours = {os.getpid(), *(pid for pair in pairs.values() for end in pair for pid in end.pids)}
    watch = Watch(ours.__contains__)
    names = list(pairs)
    cell: Cell = {"what": kind, "bytes": size, "others": []}
    seconds, cpu = ({name: list[float]() for name in names} for _ in range(2))
    for number in range(_WARMUPS + rounds):
        before = watch.read()
        for name in names[number % len(names) :] + names[: number % len(names)]:
            wall, own = _turn(pairs[name], kind, size)
            if number >= _WARMUPS:
                seconds[name] += wall
                cpu[name] += own
        if number >= _WARMUPS:
            cell["others"].append(share_of_others(before, watch.read(), os.cpu_count() or 1))
    for key, all_ in (("seconds", seconds), ("cpu", cpu)):
        cell[key] = {name: summary(each) for name, each in all_.items()}
    return cell


def measured(programs: Mapping[str, Path], rates: Sequence[int], rounds: int) -> list[Cell]:
    """Measure all kinds and sizes at these rates, in Mbit/s: summaries of the seconds of all transfers."""
    cells = []
    for mbit in rates:
        load = os.getloadavg()[0]
        with Rig(2, mbit) as rig, contextlib.ExitStack() as stack:
            pairs = {name: stack.enter_context(ends(rig, path)) for name, path in programs.items()}
            for pair in pairs.values():
                _part(pair)
            for kind in KINDS:
                for size in AT_ONCE:
                    cell = _cell(pairs, kind, size, rounds)
                    cells.append({"mbit": mbit, "load": load, "rounds": rounds, **cell})
                    print(f"{mbit} Mbit/s, {kind}, {size} B", flush=True)
    return cells
