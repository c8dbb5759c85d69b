"""Process sets: groups of ranks that reduce, gather and wait among themselves."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from roundelay import _core
from roundelay.errors import NotInThisVersionError
from roundelay.torch._internal.topology import Topology, topology

Ranks = Iterable[int] | Callable[[Topology], Iterable[int]]


class ProcessSet:
    """Some ranks of the job. Give it to ``init`` or ``add_process_set``, then to operations.

    ranks_or_comm: world ranks in any order; members are numbered in ascending order. Or a function that
    returns them for a ``hvd.topology()``, the same on all ranks: it is called when the set is added, and
    again for each generation of an elastic job, in which the set goes on. A set of a list ends with its
    generation. ``process_set_id`` is None while the set is not part of the job: before it is added, after it
    is removed, after ``shutdown``.
    ValueError for ranks that are none, negative, given twice or no ints; NotInThisVersionError for an mpi4py
    communicator.
    """

    process_set_id: int | None = None
    mpi_comm: Any = None
    _ranks: Sequence[int] = ()
    _ranks_of: Callable[[Topology], Iterable[int]] | None = None
    _ended: int | None = None  # the generation of an elastic job with which it has ended

    def __init__(self, ranks_or_comm: Ranks) -> None:
        if callable(ranks_or_comm):
            self._ranks_of = ranks_or_comm
        else:
            self._ranks = _checked_ranks(ranks_or_comm)

    @property
    def ranks(self) -> list[int]:
        """The world ranks of the members, ascending."""
        return list(self._ranks)

    @property
    def goes_on(self) -> bool:
        """Whether it is made again in each generation of an elastic job."""
        return self._ranks_of is not None

    def find_ranks(self) -> None:
        """Asks the function for the ranks in the present topology. ValueError: they are wrong."""
        if self._ranks_of is not None:
            self._ranks = _checked_ranks(self._ranks_of(topology()))

    def size(self) -> int:
        """Returns the number of members. ValueError if the set is not part of the job."""
        set_id(self)
        return len(self._ranks)

    def rank(self) -> int:
        """Returns the number of this process among the members. ValueError if it is no member."""
        member_id(self)
        return self._ranks.index(_core.rank())

    def included(self) -> bool:
        """Returns whether this process is one of the ranks, also of a set that is not part of the job."""
        return _core.rank() in self._ranks

    def __copy__(self) -> ProcessSet:
        return self  # a copy would keep the id after the set is removed, and another set may get that id

    def __deepcopy__(self, memo: dict[int, Any]) -> ProcessSet:
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _with_ranks, (self.ranks,)

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _World(ProcessSet):
    """The set of all ranks."""

    process_set_id = 0

    def __init__(self) -> None:
        pass

    @property
    def ranks(self) -> list[int]:
        return list(range(_core.size()))

    def size(self) -> int:
        return _core.size()

    def rank(self) -> int:
        return _core.rank()

    def included(self) -> bool:
        _core.size()  # raises ValueError before init
        return True

    def __reduce__(self) -> str:
        return "global_process_set"

    def __repr__(self) -> str:
        return "ProcessSet(process_set_id=0, all ranks)"


global_process_set: ProcessSet = _World()

_added: dict[int, ProcessSet] = {}
_lasting: dict[ProcessSet, None] = {}  # functions of the topology, in the order in which they were added
_own: dict[tuple[str, tuple[int, ...]], ProcessSet] = {}  # the library's, by use and ranks
_changing = threading.Lock()  # held during a change, as the ranks agree on one change at a time


def _with_ranks(ranks: list[int]) -> ProcessSet:
    """Unpickles a set: returns the job's set of these ranks, else one that is not part of the job."""
    same = (added for added in list(_added.values()) if added.ranks == ranks)
    return next(same, None) or ProcessSet(ranks)


def _checked_ranks(ranks: Any) -> list[int]:
    if hasattr(ranks, "Get_rank"):
        raise NotInThisVersionError(
            "ProcessSet of an mpi4py communicator is not in this version yet: give it a list of world ranks"
        )
    if isinstance(ranks, str | bytes) or not isinstance(ranks, Iterable):
        raise ValueError(f"a process set needs a list of ranks, not {type(ranks).__name__}")
    given = list(ranks)
    try:
        numbers = sorted(operator.index(rank) for rank in given if not isinstance(rank, bool))
    except TypeError:
        numbers = []
    if len(numbers) != len(given):
        raise ValueError(f"the ranks of a process set must be ints, not {given!r}")
    if not numbers:
        raise ValueError("a process set needs at least one rank")
    if numbers[0] < 0:
        raise ValueError(f"the ranks of a process set must not be negative: {given}")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"the ranks of a process set must differ: {given}")
    return numbers


def set_id(process_set: ProcessSet) -> int:
    """Returns the core's id of the set. ValueError if the set is not part of the job, or before ``init``."""
    if not isinstance(process_set, ProcessSet):
        raise ValueError(
            f"process_set must be a ProcessSet, such as add_process_set returns, not {process_set!r}"
        )
    if process_set.process_set_id is None:
        _core.size()  # before init this raises its own ValueError
        if process_set._ended is not None:
            raise ValueError(
                f"the process set of ranks {process_set.ranks} has ended with generation "
                f"{process_set._ended} of this elastic job: ranks have other numbers now. Add a set in a "
                "reset callback, and wrap its optimizers again; or give ProcessSet a function of the topology"
            )
        raise ValueError(
            f"the process set of ranks {process_set.ranks} is not part of the job (not added, or removed): "
            "call hvd.add_process_set on all ranks"
        )
    return process_set.process_set_id


def member_id(process_set: ProcessSet) -> int:
    """Returns the core's id of the set for a call of its members: ValueError on other ranks, too."""
    number = set_id(process_set)
    if number != 0 and _core.rank() not in process_set._ranks:
        raise ValueError(
            f"rank {_core.rank()} is not in process set {number} of ranks {process_set.ranks}: call it only "
            "where process_set.included()"
        )
    return number


def add_process_set(process_set: ProcessSet | Ranks) -> ProcessSet:
    """Makes a set part of the job; every rank of the job must call it, members or not, with the same ranks.

    Returns the set (a new one where ranks were given) with its ``process_set_id``. ValueError: the ranks are
    wrong, or a set with the same ranks is part of the job already, naming its id. MismatchError: the
    ranks of the job mean different sets.
    """
    _core.size()
    with _changing:
        try:
            added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
            added.find_ranks()
            _check_new(added)
        except Exception as error:
            _core.submit_error("process_set", None, str(error), 0)
            raise
        number = _core.add_process_set(added.ranks)
        _added[number] = added
        added.process_set_id, added._ended = number, None
        if added.goes_on:
            _lasting[added] = None
    return added


def make_again() -> None:
    """Makes the sets that are functions of the topology. All ranks of the last generation call it.

    New ranks add them meanwhile, in the same order.
    """
    for process_set in _lasting:
        add_process_set(process_set)


def made_again() -> list[ProcessSet]:
    """Returns those sets."""
    return list(_lasting)


def ranks_by_id() -> dict[int, list[int]]:
    """Returns the ranks of the job's sets by ``process_set_id``, that of all ranks included."""
    return {0: global_process_set.ranks, **{number: one.ranks for number, one in _added.items()}}


def own_process_set(ranks: list[int], use: str) -> ProcessSet:
    """Returns the library's own set of these ranks for one use. All ranks of the job call it, with the same.

    It has lanes of its own, and users do not see it: they may add a set of the same ranks.
    """
    key = use, tuple(ranks)
    with _changing:
        if key not in _own:
            added = ProcessSet(ranks)
            added.process_set_id = _core.add_process_set(added.ranks)
            _own[key] = added
    return _own[key]


def _check_new(process_set: ProcessSet) -> None:
    ranks = process_set.ranks
    if ranks[-1] >= _core.size():
        raise ValueError(
            f"a process set of ranks {ranks} cannot be: the job has ranks 0 to {_core.size() - 1}"
        )
    same = [number for number, other in _added.items() if other.ranks == ranks]
    if len(ranks) == _core.size():
        same.append(0)
    if same and not process_set.goes_on:  # in another topology functions may return the same
        raise ValueError(f"a process set of ranks {ranks} is part of the job already: its id is {same[0]}")


def remove_process_set(process_set: ProcessSet) -> bool:
    """Takes a set out of the job; every rank of the job must call it, members or not.

    Waits for the set's operations in flight; those that can no longer complete fail. Afterwards its
    ``process_set_id`` is None. Returns False for the global set, which stays, and for a set that is not part
    of the job; ranks that remove another one then get an error. MismatchError where the ranks of the job mean
    different sets.
    """
    _core.size()
    with _changing:
        try:
            number = set_id(process_set)
        except ValueError as error:
            _core.submit_error("process_set", None, str(error), 0)
            if isinstance(process_set, ProcessSet):
                return False
            raise
        if number == 0:
            return False
        _core.remove_process_set(number)
        _added.pop(number, None)
        _lasting.pop(process_set, None)
        process_set.process_set_id = None
    return True


def forget_process_sets(generation: int | None = None) -> None:
    """Takes all sets out of the job, which is over. Takes no lock, as it runs in forked children, too.

    generation: that of an elastic job, which goes on.
    """
    for process_set in (*_added.values(), *_own.values()):
        process_set.process_set_id, process_set._ended = None, generation
    if generation is None:
        _lasting.clear()
    _added.clear()
    _own.clear()
