"""The options of a job that runs a function, and roundelayrun's flags for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


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
        if self.hostfile is not None:
            where = ["--hostfile", os.fspath(self.hostfile)]
        else:
            where = ["-H", self.hosts if self.hosts is not None else f"localhost:{self.num_proc}"]
        valued = {
            "--mpi-args": self.mpi_args or None,
            "--start-timeout": self.start_timeout or None,
            "--output-filename": self.output_filename or None,
            "--ssh-port": self.ssh_port,
            "--ssh-identity-file": self.ssh_identity_file,
            "--network-interfaces": self.network_interfaces,
        }
        return [
            *("-np", str(self.num_proc), *where),
            *(f"--{name}" for name, wanted in self.modes.items() if wanted),
            *(f"{flag}={_text(value)}" for flag, value in valued.items() if value is not None),
            *(["--verbose"] if self.verbose else []),
        ]


def _text(value: float | str | os.PathLike[str]) -> str:
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def number_of_ranks(num_proc: int, np: int | None) -> int:
    """Returns the number of ranks, which has two names. ValueError: both are given, and differ."""
    if np is not None and num_proc not in (1, np):
        raise ValueError(f"num_proc={num_proc} and np={np} are two names for one number")
    return num_proc if np is None else np
