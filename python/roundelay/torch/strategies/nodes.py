"""The nodes of a job: which ranks they have, and the process set of this rank's node."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from roundelay import _core
from roundelay.errors import HorovodInternalError
from roundelay.torch.process_sets import ProcessSet, existing_or_added, set_id
from roundelay.torch.topology import topology

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def node_id() -> str:
    """Returns this process's node id, as csrc/bootstrap/rank_info.h defines it."""
    given = _core.config().node_id
    return given or f"{platform.node()}/{_BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ''}"


class Place(NamedTuple):
    """A rank's node, as the rank knows it."""

    node: str
    local_size: int  # the number of ranks that the core has found there


def nodes_of(places: Mapping[int, Place]) -> list[list[int]]:
    """Returns the ranks of each node, in the order of the nodes' first ranks.

    places: each rank's. HorovodInternalError, on every rank: the core has found other nodes.
    """
    nodes: dict[str, list[int]] = {}
    for rank in sorted(places):
        nodes.setdefault(places[rank].node, []).append(rank)
    for ranks in nodes.values():
        for rank in ranks:
            if places[rank].local_size != len(ranks):
                raise HorovodInternalError(
                    f"rank {rank} shares its node id with {len(ranks)} ranks, and its node has "
                    f"{places[rank].local_size}: set ROUNDELAY_NODE_ID to one value for each node"
                )
    return list(nodes.values())


class Levels(NamedTuple):
    """The nodes of a process set, as its techniques see them."""

    place: int  # of this rank among those of the set on its node
    members: int  # of the node; 1, if the set's nodes have different numbers, or do not share memory
    nodes: int

    @classmethod
    def of(cls, process_set: ProcessSet) -> Levels:
        """Returns the levels of a set that has this rank."""
        members, *across = _core.levels(set_id(process_set))
        own = next(part.ranks for part in topology().levels[0].parts if _core.rank() in part.ranks)
        place = [rank for rank in process_set.ranks if rank in own].index(_core.rank()) if members > 1 else 0
        return cls(place, members, math.prod(across))


def sets_of(nodes: list[list[int]]) -> list[ProcessSet]:
    """Returns a process set of each node that has several ranks; all ranks of the job call it."""
    return [existing_or_added(ranks) for ranks in nodes if len(ranks) > 1]
