"""With mpirun or without: what was asked for, what the variables tell, and what the machine has."""

from __future__ import annotations

import errno
import os

import pytest

from roundelay.run.arguments import parser
from roundelay.run.errors import UsageError
from roundelay.run.launcher import launch_mode
from roundelay.run.launcher.hosts import Host


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One with an MPI that this build can use, and shared memory."""
    monkeypatch.setattr("roundelay._internal.backend.mpi_module", lambda: "_mpi.so")
    monkeypatch.setattr("roundelay.run.launcher.mpi.candidates", lambda _environment: [("mpirun", "on PATH")])
    return monkeypatch


HOSTS = [Host("far", 2)]


def uses_mpi(*flags: str, named: list[Host] | None = None, variables: dict[str, str] | None = None) -> bool:
    """named: the hosts that the user gave; empty: a scheduler has some; None: this machine."""
    given = parser.make_parser("roundelayrun").parse_args(["-np", "2", *flags, "true"])
    return launch_mode.use_mpi(given, named is None, named or [], variables or {})


@pytest.mark.usefixtures("machine")
def test_one_machine_needs_none() -> None:
    assert not uses_mpi()
    assert not uses_mpi("--gloo", variables={"ROUNDELAY_FABRIC": "mpi"})
    assert not uses_mpi(variables={"ROUNDELAY_FABRIC": "c10d"})
    assert not uses_mpi("--binding-args=--bind-to none")


@pytest.mark.usefixtures("machine")
def test_what_takes_mpirun() -> None:
    assert uses_mpi("--mpi")
    assert uses_mpi("--mpi-args=--verbose")
    assert uses_mpi("--binding-args=--bind-to core")
    assert uses_mpi(named=HOSTS)
    assert uses_mpi(named=[])
    for name in ("ROUNDELAY_BOOTSTRAP", "ROUNDELAY_CHANNEL", "ROUNDELAY_FABRIC"):
        assert uses_mpi(variables={name: "mpi"})


def test_several_hosts_need_none_either(machine: pytest.MonkeyPatch) -> None:
    assert not uses_mpi("--gloo", named=HOSTS)
    machine.setattr("roundelay.run.launcher.mpi.candidates", lambda _environment: [])
    assert not uses_mpi(named=HOSTS)
    assert uses_mpi(named=[])  # only an MPI knows the scheduler's hosts


@pytest.mark.usefixtures("machine")
def test_what_only_mpi_could_do() -> None:
    with pytest.raises(UsageError, match="--gloo does not know the hosts of a scheduler's allocation"):
        uses_mpi("--gloo", named=[])
    with pytest.raises(UsageError, match="--binding-args are for mpirun"):
        uses_mpi("--gloo", "--binding-args=--bind-to core")
    with pytest.raises(UsageError, match="--mpi-args are for mpirun"):
        uses_mpi("--gloo", "--mpi-args=--verbose")


def test_without_shared_memory_an_mpi_is_taken_where_there_is_one(machine: pytest.MonkeyPatch) -> None:
    asked = []

    def full(_file: int, _offset: int, length: int) -> None:
        asked.append(length)
        raise OSError(errno.ENOSPC, "no space left")

    open_before = len(os.listdir("/proc/self/fd"))
    machine.setattr("os.posix_fallocate", full)
    assert uses_mpi()
    assert asked == [2 << 20]
    assert len(os.listdir("/proc/self/fd")) == open_before
    machine.setattr("roundelay.run.launcher.mpi.candidates", lambda _environment: [])
    assert not uses_mpi()
    machine.undo()
    assert launch_mode.can_share_memory(2)


def test_a_machine_that_forbids_shared_memory(machine: pytest.MonkeyPatch) -> None:
    def forbidden(_name: str) -> int:
        raise PermissionError

    machine.setattr("os.memfd_create", forbidden)
    assert not launch_mode.can_share_memory(1)
    assert uses_mpi()
