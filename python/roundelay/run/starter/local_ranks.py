"""Starts the agents of one host's ranks without mpirun, and ends them together.

Uses only the standard library, as it runs on hosts that import nothing else of Roundelay.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from roundelay._internal.launcher_variables import TORCH, names
from roundelay.run.agent import agent, horovod_variables, torch_variables
from roundelay.run.agent.agent import OWN_RANK
from roundelay.run.agent.protocol import FAILED
from roundelay.run.system import signals
from roundelay.run.system.processes import (
    ORPHAN_GRACE_S,
    adopt_orphans,
    die_with_parent,
    end_orphans,
    exit_status,
    how,
    send_signal,
)

# Where ranks meet, "ADDRESS PORT MASTER_PORT": rank 0 serves a store there. And its descriptor that listens.
STORE, LISTENER = "ROUNDELAY_RUN_STORE", "ROUNDELAY_RUN_LISTENER"
# An outer job's launcher sets these for its own ranks. Variables that users set for an MPI stay.
_OUTER_PREFIXES = (*names("prefixes"), *TORCH.prefixes)
_OUTER = (
    *(*TORCH.rank, *TORCH.size, *TORCH.local_rank, *TORCH.local_size),
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    OWN_RANK,
    STORE,
    LISTENER,
    horovod_variables.MARK,
    *horovod_variables.NAMES,
)
_OF_AN_MPI = "PMIX_MCA_"


def without_outer_job(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without the variables that an outer launcher has set for its own ranks."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_OF_AN_MPI) or not (name in _OUTER or name.startswith(_OUTER_PREFIXES))
    }


class Numbered(Protocol):
    """The numbers of the ranks that this host starts, and the variables that tell each of them."""

    @property
    def first_rank(self) -> int:
        """The number of the first one."""

    @property
    def local_size(self) -> int:
        """How many there are."""

    def environment(self, local_rank: int) -> dict[str, str]:
        """Returns the variables of one."""


@dataclass(frozen=True)
class HostRanks:
    """The numbers of a host's ranks in the job, and where all ranks meet."""

    first_rank: int
    local_size: int
    size: int
    host_index: int
    store: tuple[str, int]  # address and port
    master_port: int  # at the same address, for torch.distributed

    def environment(self, local_rank: int) -> dict[str, str]:
        """Returns the variables that torchrun would set: scripts and torch.distributed expect them."""
        rank = self.first_rank + local_rank
        numbers = {
            "RANK": rank,
            "WORLD_SIZE": self.size,
            "LOCAL_RANK": local_rank,
            "LOCAL_WORLD_SIZE": self.local_size,
            "GROUP_RANK": self.host_index,
            "MASTER_PORT": self.master_port,
            OWN_RANK: rank,
        }
        address, port = self.store
        texts = {name: str(number) for name, number in numbers.items()}
        return {**texts, "MASTER_ADDR": address, STORE: f"{address} {port} {self.master_port}"}


class StorePorts:
    """The two ports of the host of rank 0: the store's, which listens, and the one for torch.distributed.

    Nobody listens at the second one until rank 0's program does (torch_variables.hold). Keep this until all
    ranks have ended.
    """

    def __init__(self, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._store = socket.create_server((address, 0), family=family, backlog=socket.SOMAXCONN)
        self._master = torch_variables.hold(address)
        self.store: tuple[str, int] = self._store.getsockname()[:2]
        self.master_port: int = self._master.getsockname()[1]

    @property
    def listener(self) -> int:
        """The descriptor that listens, until release()."""
        return self._store.fileno()

    def release(self) -> None:
        """Closes the store's socket, which rank 0 has inherited, so that it ends with rank 0."""
        self._store.close()

    def close(self) -> None:
        """Gives both ports back."""
        self._store.close()
        self._master.close()


class LocalRanks:
    """The agents' processes. Create and wait on the main thread; any thread may signal() and end()."""

    def __init__(self) -> None:
        adopt_orphans()
        self._ranks: dict[int, int] = {}  # by pid of the agents that run
        self._status = 0
        self._ending = False

    def start(
        self, program: list[str], ranks: Numbered, environment: Mapping[str, str], listener: int | None
    ) -> None:
        """Starts the agents. Rank 0 inherits `listener`, the socket to which all ranks connect."""
        environment = without_outer_job(environment)
        for local_rank in range(ranks.local_size):
            own = {**environment, **ranks.environment(local_rank)}
            handed = None
            if listener is not None and local_rank == 0:
                handed = listener
                own[LISTENER] = str(listener)
            self._ranks[_fork_agent(program, own, handed)] = ranks.first_rank + local_rank

    def signal(self, signum: int) -> None:
        """Passes a signal on to the agents, and these to their programs."""
        for pid in list(self._ranks):
            send_signal(pid, signum)

    def end(self) -> None:
        """Ends all agents, and blocks meanwhile: SIGTERM, a grace, SIGKILL."""
        self._ending = True
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + ORPHAN_GRACE_S
        while self._ranks and time.monotonic() < deadline:
            time.sleep(0.02)
        self.signal(signal.SIGKILL)

    def wait(self) -> int:
        """Waits for all, and ends the processes they leave. Returns the first exit status that is not 0."""
        while self._ranks:
            pid, waited = os.waitpid(-1, 0)
            rank = self._ranks.pop(pid, None)
            if rank is None:
                continue  # an orphan that was adopted
            returncode = os.waitstatus_to_exitcode(waited)
            if returncode == FAILED and self._ranks:
                threading.Thread(target=self.end, daemon=True).start()
            self._status = self._status or exit_status(returncode)
            if returncode < 0 and not self._ending:
                os.write(2, f"the agent of rank {rank} was {how(returncode)}\n".encode())
        end_orphans(0.0 if self._ending else ORPHAN_GRACE_S)
        return self._status


def _fork_agent(program: list[str], environment: Mapping[str, str], listener: int | None) -> int:
    """Forks one rank's agent and returns its pid. Forks start faster than new Pythons, and share memory.

    The agent keeps only descriptors 0, 1, 2 and the listener. Signals end it until it handles them itself.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signals.ENDING)
    pid = os.fork()
    if pid != 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return pid
    status = FAILED
    try:
        die_with_parent(signal.SIGKILL)
        signals.handle(signals.ENDING, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        first = 3
        if listener is not None:
            os.closerange(first, listener)
            os.set_inheritable(listener, True)
            first = listener + 1
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(environment)
        status = agent.run(program)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def on_signals(handle: Callable[[int], None]) -> None:
    """Calls `handle` with the number of each signal that asks this process to end, and survives others."""
    signals.handle(signals.ENDING, lambda number, _frame: handle(number))
    signals.handle(signals.FORWARDED, lambda _number, _frame: None)
