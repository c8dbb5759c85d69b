"""What elastic training keeps in memory: commits, and the state that every rank gets from the newest one."""

from __future__ import annotations

import copy
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.generations import is_elastic, note_state
from roundelay.torch._internal.global_state import rank, size
from roundelay.torch._internal.operations import Max
from roundelay.torch.elastic.loop import HostsUpdatedInterrupt, change_of_workers
from roundelay.torch.elastic.restarts import commits
from roundelay.torch.functions import broadcast_object
from roundelay.torch.mpi_ops import allgather, allreduce

__all__ = ["ObjectState", "State"]

_numbers = itertools.count()  # of the program's states, in their order
_ONLY_REMOVED = 1  # membership.Change: nobody has joined


class State(ABC):
    """State that survives a loss of ranks. A subclass says how it is saved, restored and given to all."""

    def __init__(self) -> None:
        self._number = next(_numbers)
        self._commits = 0  # how often this rank, or the one whose state it has, has committed
        self._place: tuple[int, int] | None = None  # rank and size in the last generation that had this state
        self._reset_callbacks: list[Callable[[], object]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Adds functions to be called when the ranks have changed: to scale a learning rate, for example."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """The ranks have changed: resets what depends on their number, then calls the callbacks."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Saves the state, and looks for changes of the workers; collective.

        A commit copies the state in memory. After a loss the training goes on from the last one. Raises
        HostsUpdatedInterrupt, on every rank, if workers have come or are to leave.
        """
        self.save()
        self._commits += 1
        if commits.are_kept():
            commits.keep(self._number, (self._commits, self._place, self.saved()))
        self.check_host_updates()

    def go_on(self) -> None:
        """Takes the last commit of the process that torchrun has restarted, if there was one."""
        kept = commits.last(self._number) if commits.are_kept() else None
        if kept is not None:
            self._commits, self._place, saved = kept
            self.take_saved(saved)

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt, on every rank, if workers have come or are to leave; collective.

        The present state is kept, committed or not.
        """
        if not is_elastic():
            return
        # Not all ranks may have heard of it yet, and all must raise at the same place.
        told = allreduce(torch.tensor(change_of_workers()), op=Max, name="elastic.change")
        if told > 0:
            raise HostsUpdatedInterrupt(skip_sync=int(told) == _ONLY_REMOVED)

    def sync(self) -> None:
        """Gives every rank the state of the rank with the newest commit, the first of them; collective.

        MismatchError, on every rank, those included: some add a process set instead.
        """
        _core.end_process_set_changes()
        before, size_before = self._place or (-1, 0)
        mine = torch.tensor([[self._commits, before, size_before]])
        rows = [tuple(row) for row in allgather(mine, name="elastic.commits").tolist()]
        newest = max(commits for commits, _, _ in rows)
        root = next(number for number, row in enumerate(rows) if row[0] == newest)
        there = {before for commits, before, _ in rows if commits == newest}
        self.prepare_sync(root, self._commits == newest, sorted(set(range(rows[root][2])) - there))
        self.sync_from(root)
        self._commits = newest
        self.note_generation()

    def note_generation(self) -> None:
        """Notes that this rank has the state of the others in the present generation."""
        self._place = rank(), size()
        note_state()

    def prepare_sync(self, root: int, newest: bool, lost: list[int]) -> None:  # noqa: B027  as reset()
        """Works before sync_from(); collective. newest: this rank has the newest commit, as the root has.

        lost: ranks of the last generation that do not, because they are lost or have not reached it.
        """

    @abstractmethod
    def save(self) -> None:
        """Copies the state, for restore()."""

    @abstractmethod
    def restore(self) -> None:
        """Goes back to the last save()."""

    @abstractmethod
    def saved(self) -> Any:
        """Returns what save() has copied, for another process. It can be pickled."""

    @abstractmethod
    def take_saved(self, saved: Any) -> None:
        """Takes what saved() returned in another process, and goes back to it."""

    @abstractmethod
    def sync_from(self, root: int) -> None:
        """Gives every rank the root's state, and saves it; collective."""

    def leave_generation(self) -> None:  # noqa: B027  as reset()
        """Works before ranks come or leave in order; collective, while all old ones are there."""

    def reset(self) -> None:  # noqa: B027  most have nothing that depends on the ranks
        """Resets what depends on the number of ranks."""


class ObjectState(State):
    """State of Python objects: each keyword argument becomes an attribute. They can be pickled and copied.

    Horovod's first two arguments are accepted; the job's own functions are used.
    """

    def __init__(
        self,
        bcast_object: Callable[..., Any] | None = None,
        get_rank: Callable[[], int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self._saved: dict[str, Any] = kwargs
        self._set_attributes()

    def save(self) -> None:
        """Copies the attributes."""
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._saved}

    def restore(self) -> None:
        """Goes back to the last save()."""
        self._set_attributes()

    def saved(self) -> Any:
        """Returns the copied attributes."""
        return self._saved

    def take_saved(self, saved: Any) -> None:
        """Takes another process's attributes."""
        self._saved = saved
        self.restore()

    def sync_from(self, root: int) -> None:
        """Gives every rank the root's attributes."""
        if rank() == root:
            self.save()
        if size() > 1:
            self._saved = broadcast_object(self._saved, root_rank=root, name="elastic.objects")
        self._set_attributes()

    def _set_attributes(self) -> None:
        for name, value in copy.deepcopy(self._saved).items():
            setattr(self, name, value)
