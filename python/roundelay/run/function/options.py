"""The options of a job that runs a function, and roundelayrun's flags for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ElasticOptions:
    """Those for elastic jobs; None: not given."""

    min_np: int | None = None
    max_np: int | None = None
    slots: int | None = None
    reset_limit: int | None = None
    cooldown_range: tuple[float, float] | None = None
    host_discovery_script: str | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether the job is elastic."""
        return any(one is not None for one in (self.min_np, self.max_np, self.host_discovery_script))

    def __post_init__(self) -> None:
        """ValueError: the arguments make no sense."""
        given = (self.slots, self.reset_limit, self.cooldown_range)
        if not self.is_wanted and given != (None, None, None):
            raise ValueError("slots, reset_limit and cooldown_range are for elastic jobs: give min_np, too")

    def flags(self) -> list[str]:
        """Returns roundelayrun's flags."""
        valued = {
            "--min-np": self.min_np,
            "--max-np": self.max_np,
            "--slots-per-host": self.slots,
            "--reset-limit": self.reset_limit,
            "--host-discovery-script": self.host_discovery_script,
        }
        cooldown = self.cooldown_range or ()
        return [
            *(f"{flag}={value}" for flag, value in valued.items() if value is not None),
            *(["--blacklist-cooldown-range", *map(str, cooldown)] if cooldown else []),
        ]


@dataclass(frozen=True)
class JobOptions:
    """`roundelay.run`'s arguments about the job; `function.api.run` describes them and has the defaults."""

    num_proc: int
    hosts: str | None
    hostfile: str | os.PathLike[str] | None
    start_timeout: float | None
    output_filename: str | os.PathLike[str] | None
    verbose: bool
    ssh_port: int | None
    ssh_identity_file: str | None
    network_interfaces: str | None
    modes: Mapping[str, bool]  # kinds of launch that were asked for, by the name of their flag (run/modes)
    mpi_args: str | None
    executable: str  # the Python of the ranks
    elastic: ElasticOptions

    def __post_init__(self) -> None:
        """ValueError: the arguments make no sense."""
        if not isinstance(self.num_proc, int) or self.num_proc < 1:
            raise ValueError(f"num_proc={self.num_proc!r} is not a number of ranks, at least 1")
        if self.hosts is not None and self.hostfile is not None:
            raise ValueError("give hosts or hostfile, not both")
        asked = [f"use_{name}" for name, wanted in self.modes.items() if wanted]
        if self.mpi_args and asked not in ([], ["use_mpi"]):
            asked.append("mpi_args")
        if len(asked) > 1:
            raise ValueError(f"{' and '.join(asked[:2])} exclude each other")

    def flags(self) -> list[str]:
        """Returns roundelayrun's flags."""
        elastic = self.elastic.is_wanted
        if self.hostfile is not None:
            where = ["--hostfile", os.fspath(self.hostfile)]
        elif self.hosts is not None or not elastic:
            where = ["-H", self.hosts if self.hosts is not None else f"localhost:{self.num_proc}"]
        else:
            where = []
        valued = {
            "--mpi-args": self.mpi_args or None,
            "--start-timeout": self.start_timeout or None,
            "--output-filename": self.output_filename or None,
            "--ssh-port": self.ssh_port,
            "--ssh-identity-file": self.ssh_identity_file,
            "--network-interfaces": self.network_interfaces,
        }
        return [
            *([] if elastic and self.num_proc == 1 else ["-np", str(self.num_proc)]),
            *where,
            *self.elastic.flags(),
            *(f"--{name}" for name, wanted in self.modes.items() if wanted),
            *(f"{flag}={_text(value)}" for flag, value in valued.items() if value is not None),
            *(["--verbose"] if self.verbose else []),
        ]


def _text(value: float | str | os.PathLike[str]) -> str:
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def number_of_ranks(num_proc: int, np: int | None) -> int:
    """Returns the number of ranks, which has two names. ValueError: both are given, and differ."""
    number = one_of("num_proc", None if num_proc == 1 else num_proc, "np", np)
    return 1 if number is None else number


def one_of(name: str, number: int | None, other_name: str, other: int | None) -> int | None:
    """Returns the number of which at least one name is not given. ValueError: both are, and differ."""
    if None not in (number, other) and number != other:
        raise ValueError(f"{name}={number} and {other_name}={other} are two names for one number")
    return other if number is None else number
