"""Reads hosts and slots from -H and --hostfile, and finds out whether they are only this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from roundelay._internal import launcher_variables
from roundelay.run.errors import UsageError
from roundelay.run.system import interfaces

# With one of these the user has a start command of their own, which may know more names.
_START_COMMANDS = ("plm_rsh_agent", "HYDRA_LAUNCHER_EXEC", "HYDRA_BOOTSTRAP_EXEC")


@dataclass(frozen=True)
class Host:
    """A machine and how many ranks may run there."""

    name: str
    slots: int


def parse_hosts(text: str) -> list[Host]:
    """Reads "h1:2,h2" (one slot where none is said). Raises UsageError."""
    hosts = []
    for part in text.split(","):
        name, colon, slots = part.strip().rpartition(":") if ":" in part else (part.strip(), "", "1")
        if not name or (colon and not slots.isdigit()) or int(slots) < 1:
            raise UsageError(
                f"bad host {part.strip()!r} in {text!r}: want NAME or NAME:SLOTS, comma separated"
            )
        hosts.append(Host(name, int(slots)))
        if name in [host.name for host in hosts[:-1]]:
            raise UsageError(f"host {name!r} is listed twice in {text!r}: give it once, with all its slots")
    return hosts


def read_hostfile(path: str) -> list[Host]:
    """Reads lines like "h1 slots=2", "h1:2", "h1", "# comment". Raises UsageError naming file and line."""
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise UsageError(f"cannot read the hostfile {path!r}: {reason}") from error
    hosts: list[Host] = []
    lines_of: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        name, slots = words[0], "1"
        if len(words) == 1 and ":" in name:
            name, _, slots = name.rpartition(":")
        for word in words[1:]:
            key, equals, value = word.partition("=")
            if key not in ("slots", "max_slots", "max-slots") or not equals:
                raise UsageError(f"{path}:{number}: bad word {word!r}: want a line like 'NAME slots=N'")
            if key == "slots":
                slots = value
        if not name or not slots.isdigit() or int(slots) < 1:
            raise UsageError(f"{path}:{number}: bad slots {slots!r}: want a number, at least 1")
        if name in lines_of:
            raise UsageError(
                f"{path}:{number}: host {name!r} is listed twice (line {lines_of[name]}): "
                "give it once, with all its slots"
            )
        lines_of[name] = number
        hosts.append(Host(name, int(slots)))
    if not hosts:
        raise UsageError(f"the hostfile {path!r} names no host")
    return hosts


def used(hosts: list[Host], num_proc: int) -> list[Host]:
    """Returns the hosts that get ranks, with their numbers of ranks. Ranks fill the slots in order."""
    filled = []
    for host in hosts:
        count = min(num_proc, host.slots)
        if count > 0:
            filled.append(Host(host.name, count))
        num_proc -= count
    return filled


def is_local(name: str) -> bool:
    """Returns whether `name` is this machine's name, or one of its addresses."""
    own = socket.gethostname()
    if name in ("localhost", own, own.split(".")[0]):
        return True
    return any(name in addresses for addresses in interfaces.addresses().values())


def one_machine(hosts: list[Host], environment: Mapping[str, str]) -> bool:
    """Returns whether all ranks run here. A scheduler may have other hosts, if the user named none."""
    if hosts:
        return all(is_local(host.name) for host in hosts)
    return not any(variable in environment for variable in launcher_variables.names("allocation"))


def resolves(name: str) -> bool:
    """Returns whether the resolver or ssh's configuration knows `name` as a machine."""
    return is_local(name) or _has_address(name) or _ssh_knows(name)


def _has_address(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return False
    return True


def _ssh_knows(name: str) -> bool:
    """Returns whether ssh's configuration has `name` as an alias, or has a proxy that resolves it."""
    ssh = shutil.which("ssh")
    if ssh is None or name.startswith("-"):
        return False
    shown = subprocess.run(
        [ssh, "-G", name], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    settings = dict(line.partition(" ")[::2] for line in shown.stdout.splitlines())
    if settings.get("proxycommand", "none") != "none" or settings.get("proxyjump", "none") != "none":
        return True
    alias = settings.get("hostname", name)
    return alias != name and _has_address(alias)


def check(hosts: list[Host], num_proc: int, given_by: str, mpi_args: list[str]) -> None:
    """Raises UsageError if the hosts have too few slots, or if one of them is unknown."""
    slots = sum(host.slots for host in hosts)
    if num_proc > slots:
        raise UsageError(f"-np {num_proc} wants more ranks than the {slots} slots that {given_by} gives")
    if any(variable.endswith(_START_COMMANDS) for variable in (*os.environ, *mpi_args)):
        return
    here = [host.name for host in hosts if is_local(host.name)]
    if len(here) > 1:
        raise UsageError(f"{' and '.join(here)} (from {given_by}) are the same host, this one: give it once")
    for host in hosts:
        if not resolves(host.name):
            raise UsageError(f"unknown host {host.name!r} (from {given_by}): no address found for it")
