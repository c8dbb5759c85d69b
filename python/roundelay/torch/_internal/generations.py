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
from roundelay.run.agent.member import Dismissed, Member, NoPlaceError, Place
from roundelay.torch._internal import program, resets
from roundelay.torch._internal.resets import change

_ATTEMPTS = 3  # what fails so often has another cause than ranks that die while the others meet

Join = Callable[[str | None, Rendezvous | None, int], None]


def is_elastic() -> bool:
    """Returns whether a launcher lets this job's ranks come and go."""
    return member.of_this_process() is not None


class _Training:
    """What this process has had of the job's training."""

    has_had_place = False
    has_state = False  # State.sync() has given it
    generation: int | None = None


def note_state() -> None:
    """Notes that this process has the training's state, so that it may be rank 0 of the next generation."""
    _Training.has_state = True


def present() -> int | None:
    """Returns the number of this process's generation; None: it is in none."""
    return _Training.generation


def join_next(worker: Member, join: Join) -> None:
    """Joins the next generation with `join`. Ends the process if it is dismissed, or a newcomer and refused.

    Raises HorovodInternalError if there is no place, RuntimeError or ValueError as `join` does.
    """
    # The first optimizer of a process makes torch import for a second. The others wait from place() on.
    torch.optim.SGD([torch.empty(0)], lr=0.0)
    worker.on_over = _core.give_up_generation
    failed: dict[int, RuntimeError] = {}  # by generation: those that have not begun here
    while True:
        place = _place(worker)
        # The launcher has told of all losses before.
        causes = [error for generation, error in failed.items() if generation not in worker.lost]
        if len(causes) == _ATTEMPTS:
            raise causes[-1]
        try:
            change.begin(resets.INIT)
            join(*_store(place), place.generation)
            _Training.generation = place.generation
            change.end()
            return
        except RuntimeError as error:
            over, why = worker.over
            if over < place.generation:
                failed[place.generation], why = error, str(error)
            _core.log_warning(
                f"generation {place.generation} did not begin, and the next one is asked for: {why}"
            )


def _place(worker: Member) -> Place:
    change.begin(resets.PLACE)
    try:
        place = worker.place(has_state=_Training.has_state, program=program.described())
    except NoPlaceError as error:
        if error.dismissed:
            raise Dismissed(0) from error
        if not _Training.has_had_place:
            sys.exit(f"roundelay: this worker cannot join the job: {error}")
        raise HorovodInternalError(str(error)) from error
    change.note_place(place)
    _Training.has_had_place = True
    return place


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
