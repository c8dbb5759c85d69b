"""Numbers of the optimizers of a process set. They are part of the names of operations."""

from __future__ import annotations

import weakref
from itertools import count

from roundelay.torch.process_sets import ProcessSet, global_process_set


class Scopes:
    """Numbers the optimizers of each process set, whose ranks wrap them in the same order."""

    per_job = 1000

    def __init__(self) -> None:
        self._first = -self.per_job  # the number of the job's first optimizer
        self._of: weakref.WeakKeyDictionary[ProcessSet, count[int]] = weakref.WeakKeyDictionary()

    def restart(self) -> None:
        """Begins above the numbers of the last job: its optimizers may go on in this one."""
        self._first += self.per_job
        self._of.clear()

    def begin_anew(self) -> None:
        """Begins a generation of an elastic job: optimizers of all ranks go on, others are wrapped again."""
        for process_set in [one for one in self._of if one is not global_process_set]:
            del self._of[process_set]

    def next(self, process_set: ProcessSet) -> int:
        """Returns the number for an optimizer that is being wrapped."""
        return next(self._of.setdefault(process_set, count(self._first)))
