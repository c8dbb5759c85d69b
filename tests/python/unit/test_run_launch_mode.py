"""With mpirun or without: what was asked for, what the variables tell, and what the machine has."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Mapping

import pytest

from roundelay.run.arguments import parser
from roundelay.run.errors import UsageError
from roundelay.run.modes import MODES, mpirun
from roundelay.run.modes.choice import choose
from roundelay.run.modes.mode import Job, LaunchMode, Request, Starter
from roundelay.run.system.hosts import Host


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One with an MPI that this build can use, and shared memory."""
    monkeypatch.setattr("roundelay._internal.mpi_modules.built", lambda: {"openmpi": "_mpi_openmpi.so"})
    monkeypatch.setattr("roundelay.run.modes.mpi.candidates", lambda _environment: [("mpirun", "on PATH")])
    return monkeypatch


HOSTS = [Host("far", 2)]


def uses_mpi(*flags: str, named: list[Host] | None = None, variables: dict[str, str] | None = None) -> bool:
    """named: the hosts that the user gave; empty: a scheduler has some; None: this machine."""
    return choose(request(*flags, named=named, variables=variables)).started_by == "mpirun"


def request(
    *flags: str,
    named: list[Host] | None = None,
    variables: dict[str, str] | None = None,
    function: bool = False,
) -> Request:
    given = parser.make_parser("roundelayrun").parse_args(["-np", "2", *flags, "true"])
    return Request(given, named is None, named or [], "-H far:2", variables or {}, function)


@pytest.mark.usefixtures("machine")
def test_one_machine_needs_no_mpi() -> None:
    assert not uses_mpi()
    assert not uses_mpi("--gloo", variables={"ROUNDELAY_FABRIC": "mpi"})
    assert not uses_mpi(variables={"ROUNDELAY_FABRIC": "c10d"})
    assert not uses_mpi("--binding-args=--bind-to none")


@pytest.mark.usefixtures("machine")
def test_flags_hosts_and_variables_that_ask_for_mpirun() -> None:
    assert uses_mpi("--mpi")
    assert uses_mpi("--mpi-args=--verbose")
    assert uses_mpi("--binding-args=--bind-to core")
    assert uses_mpi(named=HOSTS)
    assert uses_mpi(named=[])
    for name in ("ROUNDELAY_BOOTSTRAP", "ROUNDELAY_CHANNEL", "ROUNDELAY_FABRIC"):
        assert uses_mpi(variables={name: "mpi"})
    assert uses_mpi(variables={"ROUNDELAY_FABRIC": "shm+mpi"})


def test_several_hosts_need_no_mpi_either(machine: pytest.MonkeyPatch) -> None:
    assert not uses_mpi("--gloo", named=HOSTS)
    machine.setattr("roundelay.run.modes.mpi.candidates", lambda _environment: [])
    assert not uses_mpi(named=HOSTS)
    assert uses_mpi(named=[])  # only an MPI knows the scheduler's hosts


@pytest.mark.usefixtures("machine")
def test_gloo_refuses_what_only_mpi_could_do() -> None:
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
    machine.setattr("roundelay.run.modes.mpi.candidates", lambda _environment: [])
    assert not uses_mpi()
    machine.undo()
    assert mpirun.can_share_memory(2)


def test_a_machine_that_forbids_shared_memory(machine: pytest.MonkeyPatch) -> None:
    def forbidden(_name: str) -> int:
        raise PermissionError

    machine.setattr("os.memfd_create", forbidden)
    assert not mpirun.can_share_memory(1)
    assert uses_mpi()


def test_a_function_reaches_other_machines_without_mpirun(machine: pytest.MonkeyPatch) -> None:
    assert choose(request(named=HOSTS, function=True)).flag == "--gloo"
    assert choose(request("--mpi", function=True)).flag == "--mpi"
    for flag in ("--mpi", "--mpi-args=--verbose"):
        with pytest.raises(UsageError, match="-H far:2: mpirun cannot carry a function to other machines"):
            choose(request(flag, named=HOSTS, function=True))


class _Cloud(LaunchMode):
    """A kind of launch that only this test knows."""

    flag = "--cloud"
    help = "start the ranks in the cloud"
    started_by = "cloud"
    carries_functions = False
    is_ours = False
    places_torch = True

    def add_flags(self, group: argparse._ArgumentGroup) -> None:
        group.add_argument("--region")

    def own_flag(self, given: argparse.Namespace) -> str | None:
        return "--region" if given.region else None

    def suits(self, request: Request) -> bool:
        return "CLOUD" in request.environment

    def find(self, environment: Mapping[str, str]) -> Starter:
        return Starter("a cloud", binds=False, command=_launched)


def _launched(job: Job) -> list[str]:
    return ["cloud", str(job.num_proc), str(job.given.region), *job.program]


@pytest.mark.usefixtures("machine")
def test_a_new_kind_is_one_class_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    every = (_Cloud(), *MODES)
    monkeypatch.setattr("roundelay.run.modes.choice.MODES", every)

    def chosen(*flags: str, **variables: str) -> LaunchMode:
        return choose(request(*flags, variables=variables))

    assert "start the ranks in the cloud" in parser.make_parser("roundelayrun").format_help()
    assert chosen("--cloud") is chosen("--region=here") is chosen(CLOUD="1") is every[0]
    assert chosen().flag == "--gloo"
    assert chosen("--mpi", CLOUD="1").flag == "--mpi"
    with pytest.raises(UsageError, match="--region are for cloud, which --gloo does without"):
        chosen("--gloo", "--region=here")
    with pytest.raises(UsageError, match="--mpi-args are for mpirun, which --cloud does without"):
        chosen("--cloud", "--mpi-args=-q")
    with pytest.raises(UsageError, match="not allowed with argument"):
        chosen("--cloud", "--mpi")


def test_the_last_kind_suits_every_job() -> None:
    assert MODES[-1].suits(request(named=[]))
