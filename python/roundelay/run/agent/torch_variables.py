"""The variables by which torch.distributed finds the ranks of a job (`env://`) that an MPI has started.

Uses only the standard library, as agents do.
"""

from __future__ import annotations

import secrets
import socket

ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"
# Below the ports that systems give to connections, and above those that steps of Slurm get
# (_internal/launch_detection.py).
_PORTS = range(30000, 32768)


def place(address: str) -> dict[str, str]:
    """Returns the variables that name rank 0's host and a port there. hold() then keeps the port."""
    return {ADDRESS: address, PORT: str(secrets.choice(_PORTS))}


def of_rank(rank: int, size: int | None, local_rank: int | None, local_size: int | None) -> dict[str, str]:
    """Returns the variables of a rank, without those whose numbers its MPI does not tell (None)."""
    numbers = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_size}
    return {name: str(number) for name, number in numbers.items() if number is not None}


def hold(address: str, port: int = 0) -> socket.socket:
    """Binds the port, so that no program that asks for any free port gets it. Closing the socket ends that.

    Rank 0's program can still listen there, with SO_REUSEADDR as all servers of PyTorch do. 0: the system
    chooses a port. OSError if somebody has the port, or the address is not this host's.
    """
    family, *_, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    held = socket.socket(family)
    try:
        held.bind(where)  # without SO_REUSEADDR, so that it fails if somebody else holds the port
    except OSError:
        held.close()
        raise
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held
