"""The variables by which programs see that horovodrun has started them, and as which rank.

Lightning, Ludwig, Determined and Petastorm look for HOROVOD_RANK; without it they train alone, silently.
Uses only the standard library, as agents do.
"""

from __future__ import annotations

import socket

# Ranks by host ("2,1"), where the launcher was told the hosts.
RANKS_BY_HOST = "ROUNDELAY_RUN_RANKS_BY_HOST"
# Set beside the variables below. The core (base/config.cc) then does not list these as without effect.
MARK = "ROUNDELAY_RUN_STARTED"
_NUMBERS = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
NAMES = tuple(f"HOROVOD_{name}" for name in (*_NUMBERS, "HOSTNAME", "CONTROLLER", "CPU_OPERATIONS"))


def of_rank(
    rank: int,
    size: int | None,
    local_rank: int | None,
    local_size: int | None,
    by_host: str,
    backend: str,
) -> dict[str, str]:
    """Returns the variables of a rank, without those whose numbers its launcher does not tell (None).

    by_host: RANKS_BY_HOST's value, or "". backend: Horovod's name for how ranks meet, "gloo" or "mpi".
    """
    cross = _cross(rank, size, local_rank, local_size, by_host)
    numbers = (rank, size, local_rank, local_size, *cross)
    texts = [None if number is None else str(number) for number in numbers]
    values = dict(zip(NAMES, [*texts, socket.gethostname(), backend, backend], strict=True))
    return {**{name: value for name, value in values.items() if value is not None}, MARK: "1"}


def _cross(
    rank: int, size: int | None, local_rank: int | None, local_size: int | None, by_host: str
) -> tuple[int, int] | tuple[None, None]:
    """Returns which of the ranks with its local rank this one is, and how many there are."""
    if local_rank is None or local_size is None:
        return None, None
    counts = [int(count) for count in by_host.split(",") if count]
    if local_size == size:
        counts = [local_size]
    first = 0
    for host, count in enumerate(counts):
        # An MPI's flags may place ranks otherwise than one host after the other.
        if first + local_rank == rank and count == local_size and sum(counts) == size:
            with_it = [index for index, ranks in enumerate(counts) if ranks > local_rank]
            return with_it.index(host), len(with_it)
        first += count
    return None, None
