"""The variables by which torch.distributed finds the ranks of a job (`env://`) that an MPI has started.

Uses only the standard library, as agents do.
"""

from __future__ import annotations

import contextlib
import secrets
import socket

NAMES = ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"
# Below the ports that systems give to connections, and above those that steps of Slurm get (_launch.py).
_PORTS = range(30000, 32768)


def place(address: str) -> dict[str, str]:
    """Returns the variables that name rank 0's host and a port there. hold() then keeps the port."""
    return {ADDRESS: address, PORT: str(secrets.choice(_PORTS))}


def of_rank(rank: int, size: int | None, local_rank: int | None, local_size: int | None) -> dict[str, str]:
    """Returns the variables of a rank, without those whose numbers its MPI does not tell (None)."""
    numbers = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_size}
    return {name: str(number) for name, number in numbers.items() if number is not None}


def hold(address: str, port: str) -> socket.socket | None:
    """Binds the port, so that no program that asks for any free port gets it. Closing the socket ends that.

    Rank 0's program can still listen there, with SO_REUSEADDR as all servers of PyTorch do. None if somebody
    has the port, or the address is not this host's: only a program that needs the port must care.
    """
    with contextlib.suppress(OSError, ValueError):
        family, *_, where = socket.getaddrinfo(address, int(port), type=socket.SOCK_STREAM)[0]
        held = socket.socket(family)
        with contextlib.ExitStack() as unless_bound:
            unless_bound.callback(held.close)
            held.bind(where)  # without SO_REUSEADDR, so that it fails if somebody else holds the port
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            unless_bound.pop_all()
            return held
    return None
