"""Reads `init(comm=...)`: a subset of the ranks that one launcher started is a job of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from roundelay import _core
from roundelay._internal import backend, mpi_modules
from roundelay._internal.launch_detection import Rendezvous


@dataclass(frozen=True)
class Subset:
    """The launched ranks that are in the job. All of them if the first two fields are empty."""

    ranks: tuple[int, ...] = ()  # the job's ranks, in its order
    communicator: int | None = None  # mpi4py's, by its Fortran handle
    name: str = ""  # tells jobs of one launch apart


_present = Subset()


def present() -> Subset:
    """Returns the ranks of this process's job, while it is in one."""
    return _present


def entered(subset: Subset) -> None:
    """Notes that this process is in the job of these ranks now."""
    global _present  # noqa: PLW0603
    _present = subset


def read(comm: Any) -> Subset:
    """Reads the user's `comm`: None, ranks, or a communicator of mpi4py's.

    Raises ValueError; RuntimeError if mpi4py uses another MPI than this build.
    """
    if comm is None:
        return Subset()
    if hasattr(comm, "py2f"):
        _check_same_mpi()
        return Subset(communicator=comm.py2f(), name=_members(comm))
    if isinstance(comm, str | Mapping) or not isinstance(comm, Iterable):
        raise ValueError(f"comm must be a list of ranks, a communicator of mpi4py or None, not {comm!r}")
    ranks = tuple(comm)
    for rank in ranks:
        if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
            raise ValueError(f"comm must be a list of ranks, which count from 0: {rank!r} is none")
        if ranks.count(rank) > 1:
            raise ValueError(f"comm has rank {rank} more than once: {list(ranks)}")
    return Subset(ranks, name=_listed(ranks))


def _listed(ranks: Iterable[int]) -> str:
    return ",".join(map(str, ranks))


def _members(communicator: Any) -> str:
    from mpi4py import MPI

    group, world = communicator.Get_group(), MPI.COMM_WORLD.Get_group()
    return _listed(MPI.Group.Translate_ranks(group, list(range(group.Get_size())), world))


def _check_same_mpi() -> None:
    path = mpi_modules.choose()
    if path is None:
        raise RuntimeError(
            "init(comm=...) with a communicator needs MPI, but this build of Roundelay has no MPI module"
        )
    from mpi4py import MPI

    theirs, ours = MPI.Get_library_version(), _core.backend_description(path).partition(",")[0]
    if not theirs.startswith(ours):
        raise RuntimeError(
            f"the communicator is of mpi4py's {theirs.splitlines()[0]}, but Roundelay was built with {ours}: "
            "install both with one MPI"
        )


def choose(subset: Subset, bootstrap: str) -> tuple[str | None, Rendezvous | None]:
    """Returns the module to load at init, and the store where the subset's ranks find each other without MPI.

    Raises ValueError for ranks that were not started, RuntimeError where they cannot find each other.
    """
    if subset.communicator is not None and bootstrap == "auto":
        bootstrap = "mpi"  # MPI made the communicator, whatever started the process
    path, launch = backend.choose(bootstrap)
    if subset.communicator is not None and launch.bootstrap != "mpi":
        raise RuntimeError(
            f"init(comm=...) with a communicator needs MPI, but {launch.why}: give a list of ranks"
        )
    if launch.rendezvous is not None and subset.ranks:
        return path, _keys_apart(launch.rendezvous, subset.ranks)
    if launch.bootstrap == "single" and subset.ranks not in ((), (0,)):
        raise ValueError(f"init(comm=...): there is only rank 0, not {list(subset.ranks)}: {launch.why}")
    return path, launch.rendezvous


def _keys_apart(all_ranks: Rendezvous, ranks: tuple[int, ...]) -> Rendezvous:
    """Returns the store of a subset: that of all ranks, with keys of its own."""
    if max(ranks) >= all_ranks.size:
        raise ValueError(
            f"init(comm=...): there is no rank {max(ranks)}, only {all_ranks.size} ranks were started"
        )
    if all_ranks.rank not in ranks:
        raise ValueError(
            f"init(comm=...): this is rank {all_ranks.rank}, which is not in the list; only ranks that "
            "are in it may call"
        )
    return dataclasses.replace(
        all_ranks,
        rank=ranks.index(all_ranks.rank),
        size=len(ranks),
        job=f"{all_ranks.job}/{_listed(ranks)}",
        local_rank=None,  # the launcher's number counts ranks outside the subset, too
        local_size=None,
    )
