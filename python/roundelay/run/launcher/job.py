"""Prepares a job: turns the flags into the command that starts the ranks, and its environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass

from roundelay import horovod_shim
from roundelay.run.agent import protocol, torch_variables
from roundelay.run.agent.horovod_variables import RANKS_BY_HOST
from roundelay.run.arguments import checks, knobs, settings
from roundelay.run.launcher.connections import Listener, own_addresses
from roundelay.run.launcher.result_pipe import ResultPipe
from roundelay.run.modes import mpi
from roundelay.run.modes.choice import choose
from roundelay.run.modes.mode import Job, LaunchMode, Request
from roundelay.run.starter import local_ranks
from roundelay.run.system import hosts, limits
from roundelay.run.system.hosts import Host

DEFAULT_START_TIMEOUT_S = 30.0
_STRATEGY = "ROUNDELAY_STRATEGY"
_TUNING = "ROUNDELAY_TUNING"


@dataclass(frozen=True)
class Start:
    """A job that is ready to start."""

    command: list[str]
    environment: dict[str, str]
    added: dict[str, str]  # the part of the environment that this process does not have
    listener: Listener | None  # None: a dry run
    num_proc: int
    timeout: float  # seconds
    mode: LaunchMode
    found: str  # what starts the ranks, for --verbose


def prepare(
    given: argparse.Namespace,
    program: list[str],
    surroundings: Mapping[str, str],
    result_pipe: ResultPipe | None = None,
) -> Start:
    """Checks the flags and prepares their job. Raises UsageError.

    surroundings: the launcher's environment. With a result pipe the program is a function.
    """
    named, given_by = named_hosts(given)
    one_machine = hosts.one_machine(named, surroundings)
    if named:
        hosts.check(named, given.num_proc, given_by, given.mpi_args)
    if one_machine or any(hosts.is_local(host.name) for host in named):
        checks.check_program(program[0])
    limits.check_ranks(_ranks_here(given.num_proc, named, one_machine))
    if given.ssh_identity_file is not None:
        checks.check_identity(given.ssh_identity_file)
    mode = choose(Request(given, one_machine, named, given_by, surroundings, result_pipe is not None))
    starter = mode.find(surroundings)
    added = variables(given, surroundings)
    if named:
        added[RANKS_BY_HOST] = ",".join(str(host.slots) for host in hosts.used(named, given.num_proc))
    environment = {**local_ranks.without_outer_job(surroundings), **added}
    settings.check(environment)
    if environment.get(_STRATEGY):
        given_by = "--strategy" if given.strategy is not None else _STRATEGY
        checks.check_strategy(environment[_STRATEGY], given_by, environment)
    if one_machine or (named and hosts.is_local(named[0].name)):
        # Rank 0 is here. It writes the timeline and reads the tuning file.
        check_timeline(given, environment)
        checks.check_tuning(environment.get(_TUNING, ""))
    addresses = own_addresses(named, given.network_interfaces) if not one_machine else []
    if not mode.places_torch and torch_variables.ADDRESS not in environment:
        added.update(_place_for_torch(hosts.used(named, given.num_proc), addresses, one_machine))
        environment.update(added)
    listener = None if given.dry_run else Listener(addresses, given.num_proc)
    if listener is not None:
        environment.update({protocol.ADDRESS: listener.address, protocol.SECRET: listener.secret.hex()})
        if given.binding_args is None and not starter.binds:
            environment[protocol.BIND] = "1"
    if result_pipe is not None:
        environment.update(result_pipe.variables())
    job = Job(
        num_proc=given.num_proc,
        hosts=named,
        one_machine=one_machine,
        exports=mpi.exported(environment, one_machine),
        program=program,
        interfaces=given.network_interfaces,
        ssh=ssh_words(given),
        timeout=start_timeout(environment),
        given=given,
    )
    command = starter.command(job)
    return Start(command, environment, added, listener, given.num_proc, job.timeout, mode, starter.found)


def _place_for_torch(used: list[Host], addresses: list[str], one_machine: bool) -> dict[str, str]:
    """Returns where torch.distributed may meet; nothing where only a scheduler knows rank 0's host."""
    if one_machine:
        return torch_variables.place("127.0.0.1")
    if not used:
        return {}
    first = used[0].name
    return torch_variables.place(addresses[0] if hosts.is_local(first) else first)


def named_hosts(given: argparse.Namespace) -> tuple[list[Host], str]:
    """Returns the hosts and the flag that names them."""
    if given.hosts is not None:
        return hosts.parse_hosts(given.hosts), f"-H {given.hosts}"
    if given.hostfile is not None:
        return hosts.read_hostfile(given.hostfile), f"--hostfile {given.hostfile}"
    return [], ""


def _ranks_here(ranks: int, named: list[Host], one_machine: bool) -> int:
    """Returns how many of the ranks this machine will have, as far as known."""
    if one_machine:
        return ranks
    return sum(host.slots for host in hosts.used(named, ranks) if hosts.is_local(host.name))


def variables(given: argparse.Namespace, surroundings: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that the flags add for the ranks."""
    # Python shows a line when it is printed.
    added = {"PYTHONUNBUFFERED": surroundings.get("PYTHONUNBUFFERED", "1"), **knobs.variables(given)}
    if given.as_horovod:
        checks.check_horovod_shim()
        added["PYTHONPATH"] = horovod_shim.python_path(surroundings)
    if given.pointer_cache:
        added["LD_PRELOAD"] = ":".join(
            filter(None, (checks.pointer_cache_library(), surroundings.get("LD_PRELOAD")))
        )
    if given.network_interfaces:
        names = ",".join(given.network_interfaces)
        added |= dict.fromkeys(("ROUNDELAY_INTERFACE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), names)
    if given.tcp:
        added |= {"NCCL_IB_DISABLE": "1", "FI_PROVIDER": "tcp"}
    return added


def ssh_words(given: argparse.Namespace) -> list[str]:
    """Returns ssh's words for -p and -i."""
    port = ["-p", str(given.ssh_port)] if given.ssh_port is not None else []
    key = ["-i", os.path.abspath(given.ssh_identity_file)] if given.ssh_identity_file is not None else []
    return [*port, *key]


def check_timeline(given: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Raises UsageError if a timeline is asked for that cannot be written here."""
    name = settings.variable("TIMELINE", environment)
    if name is not None:
        given_by = "--timeline-filename" if given.timeline_filename is not None else name
        checks.check_timeline(environment[name], given_by)


def start_timeout(environment: Mapping[str, str]) -> float:
    """Returns the seconds in which all ranks must have started. `environment` was checked."""
    name = settings.variable("START_TIMEOUT", environment)
    return float(environment[name]) if name is not None else DEFAULT_START_TIMEOUT_S
