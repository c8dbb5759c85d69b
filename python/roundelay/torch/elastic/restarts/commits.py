"""A worker's end of the keeper: it gives each commit away, and finds the last one after a restart."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import torch

from roundelay.torch.data.job import identity_of
from roundelay.torch.elastic.restarts import keeper

_START_S = 30.0  # a Python without packages starts in a fraction of a second


def are_kept(environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether torchrun has started this process, and restarts it after a loss."""
    return "TORCHELASTIC_RUN_ID" in environment and environment.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"


def keep(number: int, commit: Any) -> None:
    """Keeps a copy of the commit. number: counts the states of the program. Raises RuntimeError."""
    with os.fdopen(os.memfd_create("roundelay-commit"), "w+b") as file:
        torch.save(commit, file)
        file.flush()
        with _called() as connection:
            socket.send_fds(connection, [_key(number)], [file.fileno()])
            connection.recv(1)


def last(number: int) -> Any | None:
    """Returns what the process before this one has kept last; None: nothing. Raises RuntimeError."""
    with _called() as connection:
        connection.send(_key(number))
        _, files, _, _ = socket.recv_fds(connection, 1, 1)
    if not files:
        return None
    with os.fdopen(files[0], "rb") as file:
        file.seek(0)
        return torch.load(file, weights_only=False)  # a process of this user has written it


def _key(number: int) -> bytes:
    return f"{os.environ.get('LOCAL_RANK', '0')}.{number}".encode()


def _called() -> socket.socket:
    """Returns a connection to the keeper of this agent, which is started if there is none."""
    agent = os.getppid()
    name = f"roundelay-commits-{os.geteuid()}-{identity_of(agent)}"
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(_START_S)
    try:
        try:
            connection.connect(f"\0{name}")
        except ConnectionRefusedError:
            _start(name, agent)
            connection.connect(f"\0{name}")
        if not keeper.is_of_this_user(connection):
            raise PermissionError("another user has its name")
    except OSError as error:
        connection.close()
        raise RuntimeError(f"the process that keeps commits does not answer: {error}") from error
    return connection


def _start(name: str, agent: int) -> None:
    """Starts a keeper, and waits until it listens."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__, name, str(agent)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,  # torchrun ends its workers, and not what they have started
    )
    assert process.stdout is not None
    with process.stdout as ready:
        ready.readline()
