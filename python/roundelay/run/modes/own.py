"""The ranks start without MPI: on this machine by a process of ours, elsewhere over ssh."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from roundelay.run.errors import UsageError
from roundelay.run.modes.mode import PYTHON, Job, LaunchMode, Request, Starter
from roundelay.run.starter import several_hosts, single_host
from roundelay.run.system import hosts

# Hosts must answer within this part of the start timeout, so that the line about them comes last.
_PART_FOR_HOSTS = 0.8
_KEEP_ALIVE = ("ServerAliveInterval=5", "ServerAliveCountMax=3")


class OwnMode(LaunchMode):
    """The default on this machine, and where no other kind suits."""

    flag = "--gloo"
    help = "start the ranks without MPI: here, and over ssh elsewhere (default on this machine)"
    started_by = "starter"
    carries_functions = True
    is_ours = True
    places_torch = True

    def accept(self, request: Request) -> None:
        """Refuses hosts that only a scheduler knows."""
        if not request.one_machine and not request.named:
            raise UsageError(
                f"{self.flag} does not know the hosts of a scheduler's allocation: give -H or --hostfile"
            )

    def suits(self, request: Request) -> bool:
        """Returns True."""
        return True

    def find(self, environment: Mapping[str, str]) -> Starter:
        """Returns our own starter; starter/ has its scripts."""
        return Starter("without MPI", binds=False, command=_command)


def _command(job: Job) -> list[str]:
    if job.one_machine:
        return [*PYTHON, single_host.__file__, str(job.num_proc), "--", *job.program]
    ssh = shutil.which("ssh")
    used = hosts.used(job.hosts, job.num_proc)
    local = [host.name for host in used if hosts.is_local(host.name)]
    if ssh is None and len(local) < len(used):
        raise UsageError("there is no ssh on PATH, and it starts the ranks on other hosts")
    timeout = job.timeout * _PART_FOR_HOSTS
    plan = several_hosts.Job(
        hosts=[(host.name, host.slots) for host in used],
        local=local,
        ssh=ssh_words(ssh or "ssh", timeout, job.ssh),
        exports=job.exports,
        interfaces=job.interfaces,
        timeout=timeout,
    )
    return [*PYTHON, several_hosts.__file__, plan.to_argument(), "--", *job.program]


def ssh_words(ssh: str, timeout: float, more: list[str]) -> list[str]:
    """Returns the first words of ssh's command. timeout: seconds to connect in."""
    options = ["BatchMode=yes", f"ConnectTimeout={max(1, int(timeout))}", *_KEEP_ALIVE]
    return [ssh, "-x", "-T", *(word for option in options for word in ("-o", option)), *more]
