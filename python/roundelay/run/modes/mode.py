"""What a kind of launch is to roundelayrun: flags that ask for it, and a command that starts the ranks."""

from __future__ import annotations

import argparse
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from roundelay.run.agent import agent
from roundelay.run.system.hosts import Host

PYTHON = [sys.executable, "-I", "-S"]  # starts our scripts, with the standard library alone
AGENT = [*PYTHON, agent.__file__, "--"]  # starts an agent beside a rank, whose program follows


@dataclass(frozen=True)
class Request:
    """A job whose kind of launch is to be chosen."""

    given: argparse.Namespace  # the flags
    one_machine: bool  # all ranks run here
    named: list[Host]  # the hosts that the user named; empty: this machine, or a scheduler has some
    given_by: str  # the flag that names them
    environment: Mapping[str, str]
    function: bool = False  # the program is a function of the caller's


@dataclass(frozen=True)
class Job:
    """A job whose command is wanted."""

    num_proc: int
    hosts: list[Host]  # empty: this machine, or a scheduler has some
    one_machine: bool
    exports: list[str]  # names of the variables that the ranks need
    program: list[str]  # the user's; on a rank it follows AGENT
    interfaces: list[str]  # between hosts; empty: the default
    ssh: list[str]  # more words for ssh
    timeout: float  # seconds in which all ranks must have started
    given: argparse.Namespace  # the flags, those of the kind itself among them


@dataclass(frozen=True)
class Starter:
    """What starts the ranks of one job."""

    found: str  # what it is, for --verbose
    binds: bool  # it binds ranks to CPUs unless the user says otherwise
    command: Callable[[Job], list[str]]  # returns its command line. UsageError: it has no words for a flag


class LaunchMode(ABC):
    """A kind of launch. A new one is a subclass in a file of this folder, and a line in __init__.py."""

    flag: ClassVar[str]  # asks for it, as its name without dashes does in a --config-file
    help: ClassVar[str]  # of the flag
    started_by: ClassVar[str]  # the name in messages of what starts the ranks
    carries_functions: ClassVar[bool]  # a function, too, reaches the ranks on other machines
    is_ours: ClassVar[bool]  # its lines are the launcher's own; it ends no agent for reasons of its own
    places_torch: ClassVar[bool]  # it tells ranks where torch.distributed meets

    def add_flags(self, group: argparse._ArgumentGroup) -> None:  # noqa: B027  most have none
        """Adds the flags that only this kind has."""

    def own_flag(self, given: argparse.Namespace) -> str | None:
        """Returns one of these flags that was given, and so asks for this kind; None if none was."""
        return None

    def accept(self, request: Request) -> None:  # noqa: B027  most take every job
        """Raises UsageError if it cannot start this job, for which a flag asks."""

    @abstractmethod
    def suits(self, request: Request) -> bool:
        """Returns whether it starts this job if no flag asks for a kind, and no earlier kind suits."""

    @abstractmethod
    def find(self, environment: Mapping[str, str]) -> Starter:
        """Returns what starts the ranks. Raises UsageError, with the cure, if there is none here."""
