"""How much of the machine's time went to others while something was measured.

Run delay and involuntary switches do not tell that: ranks cause them to each other. The CPU clocks of
all other processes do, to the nanosecond. /proc/stat counts in ticks, and has what the clocks lack: steal,
and processes that came and went.
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

MOST_OTHERS = 0.02  # of the machine's time in a turn: more is a disturbance
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_COARSE_S = 5 * _TICK_S  # how far off what is counted in ticks may be: each of five counters is rounded
_KERNEL_THREAD = 0x00200000  # in the flags of /proc/PID/stat
_FLAGS = 6  # their place behind the name


@dataclass(frozen=True)
class Reading:
    """Clocks at one time, in seconds: the wall's, CPU time of our processes and of others by their ids.

    `busy` and `steal` are of the whole machine, and what `busy` says is all of its CPU time.
    """

    wall: float
    ours: float
    others: Mapping[int, float]
    busy: float
    steal: float


def share_of_others(before: Reading, after: Reading, cores: int) -> float:
    """Tell what share of the time of all cores others had between two readings: 0 to 1, or a tick above."""
    seen = sum(_since(before.others.get(pid, 0.0), now) for pid, now in after.others.items())
    rest = (after.busy - before.busy) - (after.ours - before.ours)
    lost = max(seen, rest - _COARSE_S) + (after.steal - before.steal)
    return lost / (cores * (after.wall - before.wall))


def _since(before: float, now: float) -> float:
    return now - before if now >= before else now  # less: another process has the id now


def others_text(cells: Sequence[Mapping[str, Any]]) -> str:
    """Say in how many repetitions others ran, for those who drop none of them."""
    shares = [share for cell in cells for share in cell["others"]]
    disturbed = sum(share > MOST_OTHERS for share in shares)
    return f"-  other processes ran in {disturbed} of {len(shares)} repetitions"


class Watch:
    """Reads the clocks. `is_ours` tells of a process id whether it belongs to the measurement."""

    def __init__(self, is_ours: Callable[[int], bool]) -> None:
        # Kernel threads work for whoever runs: for ours, where others do not.
        self._is_other = functools.cache(lambda pid: not is_ours(pid) and not _is_kernel_thread(pid))

    def read(self) -> Reading:
        """Take half a millisecond for some hundred processes."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        ours, others = children.ru_utime + children.ru_stime, {}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                seconds = _cpu_seconds(pid)
                if self._is_other(pid):
                    others[pid] = seconds
                else:
                    ours += seconds
            except OSError:  # it has ended meanwhile
                continue
        busy, steal = _machine()
        return Reading(time.perf_counter(), ours, others, busy, steal)


def _cpu_seconds(pid: int) -> float:
    """Tell the CPU time of all threads of a process; clock_getcpuclockid(3), which Python lacks."""
    return time.clock_gettime((~pid << 3) | 2)


def _is_kernel_thread(pid: int) -> bool:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return bool(int(fields[_FLAGS]) & _KERNEL_THREAD)


def _machine() -> tuple[float, float]:
    """Seconds of all cores: at work, and stolen by the host."""
    with Path("/proc/stat").open() as file:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq) * _TICK_S, steal * _TICK_S
