"""Counts the reads of all processes of a node, in one file to which each process adds a slot of its own."""

from __future__ import annotations

import os
import threading
from array import array
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from roundelay.torch.data import fork
from roundelay.torch.data.locks import held

MEMORY, DISK, SOURCE = range(3)
NAMES = ("memory", "disk", "source")
_FIELDS = 3  # each level's: hits, bytes, nanoseconds
_COUNT = _FIELDS * len(NAMES)
_SLOT_BYTES = 8 * _COUNT
_LIMIT_S = 5.0


@dataclass(frozen=True)
class LevelStats:
    """The reads from one level by all processes of the node, and the samples that it keeps."""

    hits: int  # samples read
    bytes: int  # the size of these samples, as they are kept
    seconds: float  # all processes' time for reading and decoding them; transform does not count
    kept: int = 0  # the number of samples that the level keeps
    kept_bytes: int = 0  # the bytes that the level takes

    @property
    def samples_per_second(self) -> float:
        """Returns how many samples one process reads in a second."""
        return self.hits / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class CacheStats:
    """A node's reads since its first rank made the cache. ``print`` shows them as a table."""

    memory: LevelStats
    disk: LevelStats
    source: LevelStats

    def __str__(self) -> str:
        head = f"{'':8}{'samples read':>14}{'MiB read':>12}{'samples/s':>12}{'kept':>10}{'MiB kept':>12}"
        lines = [head]
        for name in NAMES:
            level: LevelStats = getattr(self, name)
            lines.append(
                f"{name:8}{level.hits:14}{level.bytes / 2**20:12.1f}{level.samples_per_second:12.0f}"
                f"{level.kept:10}{level.kept_bytes / 2**20:12.1f}"
            )
        return "\n".join(lines)


class Counters:
    """This process's counts in the file. Threads may share it; a forked child gets a slot of its own."""

    def __init__(self, path: Path) -> None:
        """Needs no file yet: the first process that counts makes it."""
        self._file = -1
        self._process = 0  # the id of the process that has the slot
        self._path = path
        self._lock = threading.Lock()
        self._offset = 0
        self._own = array("q", [0] * _COUNT)
        fork.watch(self)

    def add(self, level: int, hits: int, size: int, nanoseconds: int) -> None:
        """Adds reads from a level. They are lost if node memory is so full that the file cannot grow."""
        with self._lock, suppress(OSError):
            self._claim()
            first = _FIELDS * level
            self._own[first] += hits
            self._own[first + 1] += size
            self._own[first + 2] += nanoseconds
            os.pwrite(self._file, self._own.tobytes(), self._offset)

    def _claim(self) -> None:
        if self._process == os.getpid():
            return
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with held(self._path, _LIMIT_S):
                size = os.fstat(file).st_size
                self._offset = size + -size % _SLOT_BYTES  # a write may have been cut short
                os.pwrite(file, bytes(_SLOT_BYTES), self._offset)
        except OSError:
            os.close(file)
            raise
        self._close()
        self._file, self._process = file, os.getpid()
        self._own = array("q", [0] * _COUNT)

    def totals(self) -> list[LevelStats]:
        """Returns the counts of all processes so far, those that have ended included, by level."""
        counts = array("q")
        if self._path.exists():
            data = self._path.read_bytes()
            counts.frombytes(data[: len(data) // _SLOT_BYTES * _SLOT_BYTES])
        sums = [sum(counts[field::_COUNT]) for field in range(_COUNT)]
        levels = (sums[_FIELDS * level : _FIELDS * (level + 1)] for level in range(len(NAMES)))
        return [LevelStats(hits, size, nanoseconds * 1e-9) for hits, size, nanoseconds in levels]

    def before_fork(self) -> None:
        """Takes the lock, so that no other thread has it in the moment of the fork."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Releases the lock, in parent and child."""
        self._lock.release()

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._process = -1, 0
