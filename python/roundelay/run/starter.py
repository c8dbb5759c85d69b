"""Starts the ranks of one machine without MPI: in mpirun's place, `python -I -S starter.py N -- command ...`.

Each rank gets the variables that torchrun would set, so that scripts and torch.distributed find what they
expect. Rank 0 inherits a socket that listens already: no port is guessed, and only this machine can reach it.
Uses only the standard library.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

RANK = "ROUNDELAY_RUN_RANK"  # for the agent
LISTENER = "ROUNDELAY_RUN_LISTENER"
# Of an outer job: they would tell our ranks of other ones.
_OUTER = ("OMPI_COMM_", "PMIX_", "PMI_", "MPI_LOCALNRANKS", "MV2_COMM_", "TORCHELASTIC_", LISTENER)


def environment_of(rank: int, size: int, port: int) -> dict[str, str]:
    """What a rank sees: this process's environment, and who it is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OUTER)}
    numbers = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size, RANK: rank}
    numbers["MASTER_PORT"] = port
    return {**kept, **{name: str(number) for name, number in numbers.items()}, "MASTER_ADDR": "127.0.0.1"}


def main() -> int:
    """Starts the ranks and waits for all of them; returns the first status that is not 0."""
    size, command = int(sys.argv[1]), sys.argv[3:]
    started: list[subprocess.Popen[bytes]] = []

    def pass_on(signum: int, _frame: object) -> None:
        for process in started:
            if process.returncode is None:
                process.send_signal(signum)

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, pass_on)
    with socket.create_server(("127.0.0.1", 0), backlog=socket.SOMAXCONN) as listener:
        port = listener.getsockname()[1]
        for rank in range(size):
            environment = environment_of(rank, size, port)
            handed: tuple[int, ...] = ()
            if rank == 0:
                handed = (listener.fileno(),)
                environment[LISTENER] = str(listener.fileno())
            started.append(subprocess.Popen(command, env=environment, pass_fds=handed))
    statuses = [process.wait() for process in started]
    for rank, status in enumerate(statuses):
        if status < 0:
            print(f"the agent of rank {rank} was killed by {signal.Signals(-status).name}", flush=True)
    return next((128 - status if status < 0 else status for status in statuses if status != 0), 0)


if __name__ == "__main__":
    sys.exit(main())
