"""Checks whether this machine can hold so many ranks, before the first one starts.

The bounds are the least that any rank takes, so a job that is refused would have failed. Uses only the
standard library, as it runs on hosts that import nothing else of Roundelay.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from roundelay.run.errors import UsageError

# A rank takes this much: its agent has two threads and shares most of its memory, its program has one thread.
MEMORY = 3  # MiB
TASKS = 3
_OWN_FILES = 64  # open files of the launcher beside its connections
_STRANGERS = 128  # more of them where they are allowed, for callers that are no agents
_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def check_ranks(ranks: int) -> None:
    """Raises UsageError where so many ranks have no room on this machine."""
    for bounds, each, unit in (
        (_memory(), MEMORY, "MiB of memory"),
        (_tasks(), TASKS, "processes and threads"),
    ):
        most, source = min(bounds, default=(ranks * each, ""))
        if ranks * each > most:
            raise UsageError(
                f"{ranks} ranks do not fit on this machine: they take {ranks * each} {unit} at least, "
                f"and the limit is {most} ({source})"
            )


def raise_files(connections: int) -> None:
    """Lets this process have so many files open, beside its own. Raises UsageError where it must not."""
    wanted = connections + _OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise UsageError(f"the launcher needs {wanted} open files, and {hard} are allowed (ulimit -Hn)")
    wanted += _STRANGERS
    if soft != resource.RLIM_INFINITY and wanted > soft:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _memory() -> Iterator[tuple[int, str]]:
    """Yields the limits of memory in MiB, each with its source."""
    text = _read(_PROC / "meminfo")
    found = dict(line.split(":") for line in text.splitlines() if ":" in line)
    if "MemAvailable" in found:
        free = sum(int(found.get(name, "0").split()[0]) for name in ("MemAvailable", "SwapFree"))
        yield free >> 10, "what is available"
    for size, source in _cgroup_limits("memory", "memory.max", "memory.limit_in_bytes"):
        yield size >> 20, source


def _tasks() -> Iterator[tuple[int, str]]:
    """Yields the limits of processes and threads, each with its source."""
    for name in ("pid_max", "threads-max"):
        text = _read(_PROC / "sys" / "kernel" / name).strip()
        if text.isdigit():
            yield int(text), f"kernel.{name}"
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:  # the limit does not bind root
        yield soft, "ulimit -u"
    yield from _cgroup_limits("pids", "pids.max", "pids.max")


def _cgroup_limits(controller: str, file: str, file_v1: str) -> Iterator[tuple[int, str]]:
    """Yields the limits of this process's control group and of all above it, in both versions' trees."""
    for line in _read(_PROC / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root, name = (_CGROUPS / controller, file_v1) if controllers else (_CGROUPS, file)
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            text = _read(folder / name).strip()
            if text.isdigit():
                yield int(text), f"the control group's {name}"
            if folder == root:
                break


def _read(path: Path) -> str:
    """Returns a file's text; "" if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
