"""Prepares an elastic job: checks the flags, and turns them into what its driver needs."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Mapping

from roundelay.run.agent import protocol
from roundelay.run.arguments import checks, settings
from roundelay.run.elastic.discovery import Discovery
from roundelay.run.elastic.driver import Settings
from roundelay.run.elastic.membership import Limits
from roundelay.run.elastic.worker import Launch
from roundelay.run.errors import UsageError
from roundelay.run.launcher import job
from roundelay.run.launcher.connections import Listener, own_addresses
from roundelay.run.launcher.result_pipe import ResultPipe
from roundelay.run.modes import MODES, mpi
from roundelay.run.modes.own import OwnMode, ssh_words
from roundelay.run.starter import local_ranks
from roundelay.run.system import hosts
from roundelay.run.system.hosts import Host

_TIMEOUT_S = 600.0
_TIMEOUT = "HOROVOD_ELASTIC_TIMEOUT"
_MARK = "HOROVOD_ELASTIC"  # programs of Horovod look at it


def is_elastic(given: argparse.Namespace) -> bool:
    """Returns whether a flag asks for an elastic job."""
    return any(flag is not None for flag in (given.min_np, given.max_np, given.host_discovery_script))


def prepare(
    given: argparse.Namespace,
    program: list[str],
    surroundings: Mapping[str, str],
    say: Callable[[str], None],
    result_pipe: ResultPipe | None = None,
) -> tuple[Settings, Listener]:
    """Checks the flags and prepares their job; with a result pipe the program is a function. UsageError."""
    least, most = _ranks(given)
    _check_flags_of_others(given)
    checks.check_program(program[0])
    named, _ = job.named_hosts(given)
    if named and given.host_discovery_script is not None:
        raise UsageError("--host-discovery-script prints the hosts: leave out -H and --hostfile")
    wanted = given.num_proc or least
    slots = sum(host.slots for host in named) if named else most or wanted
    if given.host_discovery_script is None and slots < wanted:
        raise UsageError(f"the hosts have {slots} slots, and {wanted} ranks are to start")
    listed = named or [Host("localhost", slots)]
    one_machine = given.host_discovery_script is None and hosts.one_machine(listed, {})
    added = job.variables(given, surroundings)
    environment = {**local_ranks.without_outer_job(surroundings), **added}
    settings.check(environment)
    addresses = [] if one_machine else own_addresses(listed if named else [], given.network_interfaces)
    discovery = _discovery(given, listed, say)
    listener = Listener(addresses, 2 * (most or slots))
    added |= {protocol.ADDRESS: listener.address, protocol.SECRET: listener.secret.hex(), _MARK: "1"}
    exports = {
        name: environment[name] for name in mpi.exported(environment, one_machine) if name in environment
    }
    launch = Launch(
        program,
        {**exports, **added},
        ssh_words(shutil.which("ssh") or "ssh", job.start_timeout(environment), job.ssh_words(given)),
        given.network_interfaces,
        [place.rpartition(":")[0] for place in listener.address.removeprefix("tcp:").split(",")]
        if addresses
        else [],
        result_pipe.function() if result_pipe is not None else None,
    )
    return (
        Settings(
            Limits(wanted, least, most or 1 << 30, tuple(given.blacklist_cooldown_range)),
            discovery,
            launch,
            given.reset_limit,
            _timeout(given, surroundings),
            job.start_timeout(environment),
            say,
            result_pipe,
        ),
        listener,
    )


def _check_flags_of_others(given: argparse.Namespace) -> None:
    """Raises UsageError for a flag that asks for another kind of launch, or for none."""
    asked = None if given.launch_mode is None else given.launch_mode.flag
    for mode in MODES:
        if not isinstance(mode, OwnMode):
            flag = asked if given.launch_mode is mode else mode.own_flag(given)
            if flag is not None:
                raise UsageError(f"{flag}: an MPI's job ends when it loses a rank; leave it out")
    if given.dry_run:
        raise UsageError("--dry-run: no one line starts the ranks of an elastic job, which come and go")


def _ranks(given: argparse.Namespace) -> tuple[int, int | None]:
    """Returns the fewest and the most ranks. Raises UsageError."""
    least = given.min_np or given.num_proc
    if least is None:
        raise UsageError("the number of ranks is missing: give --min-np N, the fewest to go on with")
    numbers = [number for number in (least, given.num_proc, given.max_np) if number is not None]
    if numbers != sorted(numbers):
        raise UsageError(f"--min-np, -np and --max-np are {numbers}: none may be less than the one before")
    return least, given.max_np


def _discovery(
    given: argparse.Namespace, named: list[Host], say: Callable[[str], None]
) -> Callable[[], Mapping[str, int]]:
    if given.host_discovery_script is not None:
        return Discovery(given.host_discovery_script, given.slots_per_host, say).hosts
    slots = {host.name: host.slots for host in named}
    return lambda: slots


def _timeout(given: argparse.Namespace, surroundings: Mapping[str, str]) -> float:
    if given.elastic_timeout is not None:
        return float(given.elastic_timeout)
    text = surroundings.get(_TIMEOUT, "")
    try:
        return float(text) if text else _TIMEOUT_S
    except ValueError as error:
        raise UsageError(f"{_TIMEOUT}={text!r} is not a number of seconds") from error
