"""Keys of gradient pools' regions, the same on all ranks without a message.

The ranks of a process set wrap their optimizers in the same order. So each of them takes and gives back keys
in the same order, and gets the same ones. The pools themselves may be made in another order on each rank.
"""

from __future__ import annotations

import weakref
from collections import deque

from roundelay.torch.process_sets import ProcessSet

MOST = 2**22  # the core's keys are from 1 on and below this (csrc/collective/shm/shared_regions.h)


class RegionKeys:
    """Hands out the keys of one process set, in blocks of ``each`` from block ``first`` on; below ``most``.

    A block that was given back is used again only when there is no other: its region lives as long as
    somebody holds a gradient in it.
    """

    def __init__(self, each: int, first: int = 0, most: int = MOST) -> None:
        self._each = each
        self._blocks = (most - 1) // each
        self._first = first
        self._fresh = 0  # the number of blocks that were ever taken
        self._taken: set[int] = set()
        self._free: deque[int] = deque()

    def take(self) -> int:
        """Returns the first key of a block. RuntimeError: all blocks are taken."""
        if self._fresh < self._blocks:
            block = (self._first + self._fresh) % self._blocks
            self._fresh += 1
        elif self._free:
            block = self._free.popleft()
        else:
            raise RuntimeError(
                f"all {self._blocks} blocks of keys for gradient pools are taken: wrap an optimizer again "
                "instead of a new one, or call shutdown() and init()"
            )
        self._taken.add(block)
        return 1 + block * self._each

    def give_back(self, key: int) -> None:
        """Ends the use of a block, on all ranks at the same place among their calls. KeyError: it is free."""
        block = (key - 1) // self._each
        self._taken.remove(block)
        self._free.append(block)


class JobKeys:
    """The keys of all process sets of this job, in blocks of ``each``."""

    per_job = 1000  # blocks between the first ones of two jobs

    def __init__(self, each: int) -> None:
        self._each = each
        self._first = -self.per_job
        self._of: weakref.WeakKeyDictionary[ProcessSet, RegionKeys] = weakref.WeakKeyDictionary()

    def restart(self) -> None:
        """Begins a job. Its blocks come after those of the last job, whose optimizers keep theirs."""
        self._first += self.per_job
        self.begin_anew()

    def begin_anew(self) -> None:
        """Hands out the job's blocks from the beginning: all optimizers take others."""
        self._of.clear()

    def of(self, process_set: ProcessSet) -> RegionKeys:
        """Returns the keys of a process set."""
        keys = self._of.get(process_set)
        if keys is None:
            keys = self._of[process_set] = RegionKeys(self._each, self._first)
        return keys
