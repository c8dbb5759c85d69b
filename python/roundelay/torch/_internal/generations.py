"""Joins the generations of an elastic job: the launcher says who is which rank of the next one."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from roundelay import _core
from roundelay._internal import backend
from roundelay._internal.launch_detection import Rendezvous
from roundelay.errors import HorovodInternalError
from roundelay.run.agent import member
from roundelay.run.agent.member import Member, NoPlaceError, Place

_ATTEMPTS = 3  # a rank may die while the others meet; what fails in each generation has another cause

Join = Callable[[str | None, Rendezvous | None, int], None]


def is_elastic() -> bool:
    """Returns whether a launcher lets this job's ranks come and go."""
    return member.of_this_process() is not None


class _Training:
    """Whether this process has the state of the job's training: State.sync() has given it."""

    has_state = False
    generation: int | None = None


def note_state() -> None:
    """Notes that this process has the training's state, so that it may be rank 0 of the next generation."""
    _Training.has_state = True


def present() -> int | None:
    """Returns the number of this process's generation; None: it is in none."""
    return _Training.generation


def join_next(worker: Member, join: Join) -> None:
    """Joins the next generation with `join`. Ends the process if the launcher dismisses it.

    Raises HorovodInternalError if there is no place, RuntimeError or ValueError as `join` does.
    """
    # The first optimizer of a process makes torch import for a second. The others wait from place() on.
    torch.optim.SGD([torch.empty(0)], lr=0.0)
    for left in reversed(range(_ATTEMPTS)):
        place = _place(worker)
        try:
            join(*_store(place), place.generation)
            _Training.generation = place.generation
            return
        except RuntimeError as error:
            if left == 0:
                raise
            _core.log_warning(
                f"generation {place.generation} did not begin, and the next one is asked for: {error}"
            )


def _place(worker: Member) -> Place:
    try:
        return worker.place(has_state=_Training.has_state)
    except NoPlaceError as error:
        if error.dismissed:
            sys.exit(0)
        raise HorovodInternalError(str(error)) from error


def _store(place: Place) -> tuple[str | None, Rendezvous | None]:
    if place.size == 1:
        return None, None
    path = backend.c10d_module()
    return path, Rendezvous(
        rank=place.rank,
        size=place.size,
        host=place.host,
        port=place.port,
        serve=place.rank == 0,
        listener=place.listener,
        job=place.job,
        local_rank=None,
        local_size=None,
    )
