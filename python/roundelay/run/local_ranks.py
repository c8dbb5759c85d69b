"""The agents of one host's ranks, where no mpirun starts them: what each is told, and how they end together.

Only the standard library: hosts that import nothing else of ours use it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from roundelay.run.agent import (
    FAILED,
    ORPHAN_GRACE_S,
    adopt_orphans,
    die_with_parent,
    end_orphans,
    send_signal,
)
from roundelay.run.verdict import exit_status, how

RANK = "ROUNDELAY_RUN_RANK"  # for the agent
LISTENER = "ROUNDELAY_RUN_LISTENER"
# Of an outer job: they would tell our ranks of other ones. What a user sets for an MPI stays.
_OUTER_PREFIXES = ("OMPI_COMM_", "PMIX_", "PMI_", "MPI_LOCAL", "MV2_COMM_", "TORCHELASTIC_")
_OUTER = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    RANK,
    LISTENER,
)
_OF_AN_MPI = "PMIX_MCA_"


def without_outer_job(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what a launcher around this one has set for its own ranks."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_OF_AN_MPI) or not (name in _OUTER or name.startswith(_OUTER_PREFIXES))
    }


@dataclass(frozen=True)
class Place:
    """Where a host's ranks stand in the job, and where all meet."""

    first_rank: int
    local_size: int
    size: int
    host_index: int
    master: tuple[str, int]  # address and port

    def environment(self, local_rank: int) -> dict[str, str]:
        """The variables that torchrun would set: scripts and torch.distributed find what they expect."""
        rank = self.first_rank + local_rank
        numbers = {
            "RANK": rank,
            "WORLD_SIZE": self.size,
            "LOCAL_RANK": local_rank,
            "LOCAL_WORLD_SIZE": self.local_size,
            "GROUP_RANK": self.host_index,
            "MASTER_PORT": self.master[1],
            RANK: rank,
        }
        return {**{name: str(number) for name, number in numbers.items()}, "MASTER_ADDR": self.master[0]}


class LocalRanks:
    """The agents' processes. Made and waited for on the main thread; signal() and end() are for any."""

    def __init__(self) -> None:
        adopt_orphans()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._ranks: dict[int, int] = {}
        self._status = 0
        self._ending = False

    def start(
        self, command: list[str], place: Place, environment: Mapping[str, str], listener: int | None
    ) -> None:
        """Starts the agents. Rank 0 inherits `listener`, a socket on the place where all meet."""
        environment = without_outer_job(environment)
        for local_rank in range(place.local_size):
            own = {**environment, **place.environment(local_rank)}
            handed: tuple[int, ...] = ()
            if listener is not None and local_rank == 0:
                handed = (listener,)
                own[LISTENER] = str(listener)
            process = subprocess.Popen(
                command,
                env=own,
                pass_fds=handed,
                preexec_fn=lambda: die_with_parent(signal.SIGKILL),  # noqa: PLW1509  it only calls prctl
            )
            self._running[process.pid] = process
            self._ranks[process.pid] = place.first_rank + local_rank

    def signal(self, signum: int) -> None:
        """Passes a signal on to the agents, and these to their programs."""
        for pid in list(self._running):
            send_signal(pid, signum)

    def end(self) -> None:
        """Ends all: SIGTERM, a grace, SIGKILL."""
        self._ending = True
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + ORPHAN_GRACE_S
        while self._running and time.monotonic() < deadline:
            time.sleep(0.02)
        self.signal(signal.SIGKILL)

    def wait(self) -> int:
        """Waits for all, and ends what they leave behind. Returns the first exit status that is not 0."""
        while self._running:
            pid, waited = os.waitpid(-1, 0)
            process = self._running.pop(pid, None)
            if process is None:
                continue  # an orphan that was adopted
            process.returncode = os.waitstatus_to_exitcode(waited)
            if process.returncode == FAILED and self._running:
                threading.Thread(target=self.end, daemon=True).start()
            self._status = self._status or exit_status(process.returncode)
            if process.returncode < 0 and not self._ending:
                line = f"the agent of rank {self._ranks[pid]} was {how(process.returncode)}"
                os.write(2, f"{line}\n".encode())
        end_orphans(0.0 if self._ending else ORPHAN_GRACE_S)
        return self._status


def on_signals(handle: Callable[[int], None]) -> None:
    """Calls `handle` with the number of each signal that asks this process to end."""
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda number, _frame: handle(number))
