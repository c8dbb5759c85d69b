"""Chooses one of the kinds of launch for a job: by the user's flags, else by what is here."""

from __future__ import annotations

import argparse

from roundelay.run.errors import UsageError
from roundelay.run.modes import MODES
from roundelay.run.modes.mode import LaunchMode, Request


def add_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Adds the flags of all kinds. The result's `launch_mode` is the kind that was asked for, or None."""
    group = parser.add_argument_group("how the ranks start")
    how = group.add_mutually_exclusive_group()
    for mode in MODES:
        how.add_argument(mode.flag, dest="launch_mode", action="store_const", const=mode, help=mode.help)
    for mode in MODES:
        mode.add_flags(group)
    return group


def choose(request: Request) -> LaunchMode:
    """Returns the kind of launch for this job.

    Raises UsageError for flags that contradict each other, or ask for a kind that cannot start the job.
    """
    given = request.given
    asked: LaunchMode | None = given.launch_mode
    for mode in MODES:
        own = mode.own_flag(given)
        if own is not None and asked is not None and asked is not mode:
            raise UsageError(f"{own} are for {mode.started_by}, which {asked.flag} does without")
        if own is not None:
            asked = mode
    carrying = [mode for mode in MODES if mode.carries_functions or not _travels(request)]
    if asked is None:
        return next(mode for mode in carrying if mode.suits(request))
    asked.accept(request)
    if asked not in carrying:
        text = f"{request.given_by}: {asked.started_by} cannot carry a function to other machines"
        raise UsageError(f"{text}; leave it to ssh")
    return asked


def _travels(request: Request) -> bool:
    """Returns whether a function must reach other machines."""
    return request.function and not request.one_machine
