"""Measures how much of the machine's time other processes had during a measurement.

Run delay and involuntary switches cannot measure it, because ranks cause them to each other. The CPU clocks
of all other processes measure it to the nanosecond. /proc/stat counts in ticks, and adds what the clocks
lack: steal, and processes that started and ended in between. Children of our processes are not among these:
their parents have their time.
"""

from __future__ import annotations

import functools
import os
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_OTHERS = 0.02  # share of the machine's time in a turn; more is a disturbance
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_COARSE_S = 5 * _TICK_S  # possible error of counts in ticks: each of five counters is rounded
_KERNEL_THREAD = 0x00200000  # a flag in /proc/PID/stat
_FLAGS, _OF_CHILDREN = 6, slice(13, 15)  # positions after the name: flags; children's user and system time


@dataclass(frozen=True)
class Reading:
    """Clocks at one time, in seconds: the wall clock, the CPU time of our processes and of each other one.

    `busy` is the CPU time of the whole machine, `steal` the time that the host took from it.
    """

    wall: float
    ours: float
    others: Mapping[int, float]
    busy: float
    steal: float


def share_of_others(before: Reading, after: Reading, cores: int) -> float:
    """Return the share of all cores' time that others had between two readings: 0 to 1, or a tick more."""
    seen = sum(_since(before.others.get(pid, 0.0), now) for pid, now in after.others.items())
    rest = (after.busy - before.busy) - (after.ours - before.ours)
    lost = max(seen, rest - _COARSE_S) + (after.steal - before.steal)
    return lost / (cores * (after.wall - before.wall))


def _since(before: float, now: float) -> float:
    return now - before if now >= before else now  # if it is less, another process has the id now


def others_text(cells: Sequence[Mapping[str, Any]]) -> str:
    """Say in how many repetitions others ran, for commands that drop none of them."""
    shares = [share for cell in cells for share in cell["others"]]
    disturbed = sum(share > MOST_OTHERS for share in shares)
    return f"-  other processes ran in {disturbed} of {len(shares)} repetitions"


class Watch:
    """Reads the clocks. `is_ours` tells whether a process id belongs to the measurement."""

    def __init__(self, is_ours: Callable[[int], bool]) -> None:
        # Kernel threads do not count as others: they work for our processes if no others run.
        self._is_other = functools.cache(lambda pid: not is_ours(pid) and not _is_kernel_thread(pid))

    def read(self) -> Reading:
        """Read all clocks. Takes half a millisecond for some hundred processes."""
        ours, others = 0.0, {}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                seconds = _cpu_seconds(pid)
                if self._is_other(pid):
                    others[pid] = seconds
                else:
                    ours += seconds + _seconds_of_ended_children(pid)
            except OSError:  # the process has ended meanwhile
                continue
        busy, steal = _machine()
        return Reading(time.perf_counter(), ours, others, busy, steal)


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process: clock_getcpuclockid(3), which Python lacks."""
    return time.clock_gettime((~pid << 3) | 2)


def _stat(pid: int) -> list[str]:
    """Return the fields after the name in /proc/PID/stat."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _is_kernel_thread(pid: int) -> bool:
    return bool(int(_stat(pid)[_FLAGS]) & _KERNEL_THREAD)


def _seconds_of_ended_children(pid: int) -> float:
    if pid == os.getpid():
        children = resource.getrusage(resource.RUSAGE_CHILDREN)  # without rounding to ticks
        return children.ru_utime + children.ru_stime
    return sum(map(int, _stat(pid)[_OF_CHILDREN])) * _TICK_S


def _machine() -> tuple[float, float]:
    """Return the seconds of all cores: at work, and stolen by the host."""
    with Path("/proc/stat").open() as file:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq) * _TICK_S, steal * _TICK_S
