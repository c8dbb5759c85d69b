"""The nodes of a job: which ranks they have, and the process set of this rank's node."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path

from roundelay import _core
from roundelay.errors import HorovodInternalError
from roundelay.torch.process_sets import ProcessSet, existing_or_added

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def node_id() -> str:
    """Returns this process's node id, as csrc/bootstrap/rank_info.h defines it."""
    given = _core.config().node_id
    return given or f"{platform.node()}/{_BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ''}"


def nodes_of(ids: Iterable[tuple[int, str]]) -> list[list[int]]:
    """Returns the ranks of each node, in the order of the nodes' first ranks. ids: each rank's node id."""
    nodes: dict[str, list[int]] = {}
    for rank, node in sorted(ids):
        nodes.setdefault(node, []).append(rank)
    return list(nodes.values())


def sets_of(nodes: list[list[int]]) -> list[ProcessSet]:
    """Returns a process set of each node that has several ranks; all ranks of the job call it.

    HorovodInternalError: the core has found other nodes.
    """
    own = next(ranks for ranks in nodes if _core.rank() in ranks)
    if len(own) != _core.local_size():
        raise HorovodInternalError(
            f"rank {_core.rank()} shares its node id with {len(own)} ranks, and its node has "
            f"{_core.local_size()}: set ROUNDELAY_NODE_ID to one value for each node"
        )
    return [existing_or_added(ranks) for ranks in nodes if len(ranks) > 1]
