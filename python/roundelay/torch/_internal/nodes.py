"""The nodes of a job: their ranks, and the process sets inside them and between them."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from roundelay import _core
from roundelay.errors import HorovodInternalError
from roundelay.torch._internal.topology import topology
from roundelay.torch.process_sets import ProcessSet, global_process_set, own_process_set, set_id

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_Nodes = Sequence[Sequence[int]]


def node_id() -> str:
    """Returns this process's node id, as csrc/bootstrap/rank_info.h defines it."""
    given = _core.config().node_id
    return given or f"{platform.node()}/{_BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ''}"


class RankNode(NamedTuple):
    """The node of a rank, as the rank knows it."""

    node: str
    local_size: int  # the number of ranks that the core has found there


def nodes_of(found: Mapping[int, RankNode]) -> list[list[int]]:
    """Returns the ranks of each node, in the order of the nodes' first ranks.

    found: the node of each rank. HorovodInternalError, on every rank: the core has found other nodes.
    """
    nodes: dict[str, list[int]] = {}
    for rank in sorted(found):
        nodes.setdefault(found[rank].node, []).append(rank)
    for ranks in nodes.values():
        for rank in ranks:
            if found[rank].local_size != len(ranks):
                raise HorovodInternalError(
                    f"rank {rank} shares its node id with {len(ranks)} ranks, and its node has "
                    f"{found[rank].local_size}: set ROUNDELAY_NODE_ID to one value for each node"
                )
    return list(nodes.values())


@dataclass(frozen=True)
class Levels:
    """The nodes of a process set, as its techniques see them."""

    place: int  # this rank's number among the set's ranks on its node
    # The set's ranks on each node, on the smallest one if they differ: further ranks have no shard. 1 if
    # ranks of a node do not share memory. GPUs on several nodes have 1 with ROUNDELAY_GPU_FABRIC=mpi, too.
    members: int
    nodes: int

    @classmethod
    def of(cls, process_set: ProcessSet, on_gpu: bool = False) -> Levels:
        """Returns the levels of a set that has this rank, for gradients on CPUs or on GPUs."""
        members, *across = _core.levels(set_id(process_set), on_gpu)
        own = next(part.ranks for part in topology().levels[0].parts if _core.rank() in part.ranks)
        nodes = math.prod(across)
        flat = members == 1 and nodes == len(process_set.ranks)  # each rank counts as a node
        place = 0 if flat else [rank for rank in process_set.ranks if rank in own].index(_core.rank())
        return cls(place, members, nodes)


def _set_of(ranks: Sequence[int], use: str) -> ProcessSet:
    return global_process_set if len(ranks) == _core.size() else own_process_set(list(ranks), use)


def inside(nodes: _Nodes, use: str) -> ProcessSet | None:
    """Returns the set of this rank's node; None if this rank is alone there. All ranks of the job call it."""
    sets = [_set_of(ranks, use) for ranks in nodes if len(ranks) > 1]
    return next((one for one in sets if one.included()), None)


@dataclass(frozen=True)
class Groups:
    """The ranks that work together inside this rank's node, and between the nodes.

    A rank's *place* is its number in its node. The ranks of one place are a group between the nodes, if the
    place is on every node.
    """

    layout: list[list[int]]  # the ranks of each node
    ranks: Sequence[int]  # the node's ranks
    places: int  # the number of groups between the nodes
    gradients: ProcessSet | None  # the node's, which reduces gradients; None: this rank is alone there
    spreads: ProcessSet | None  # the node's too: its own lane takes results of other nodes through the node
    transfers: ProcessSet | None  # this rank's group; None: its place is not on every node
    # By rank of this rank's group: the number of ranks on its node, divided by the mean of all nodes. So they
    # add up to the number of nodes, and are 1 on nodes of equal size.
    weights: Mapping[int, float]

    @property
    def place(self) -> int:
        """This rank's place."""
        return self.ranks.index(_core.rank())

    @classmethod
    def of(cls, nodes: _Nodes) -> Groups:
        """Makes the sets. All ranks of the job call it, with the same nodes."""
        places = min(map(len, nodes))
        gradients, spreads = inside(nodes, "gradients"), inside(nodes, "spreads")
        groups = [own_process_set([ranks[place] for ranks in nodes], "transfers") for place in range(places)]
        own = next(ranks for ranks in nodes if _core.rank() in ranks)
        transfers = next((one for one in groups if one.included()), None)
        mean = sum(map(len, nodes)) / len(nodes)
        peers = [] if transfers is None else transfers.ranks
        weights = {rank: len(ranks) / mean for ranks in nodes for rank in ranks if rank in peers}
        layout = [list(ranks) for ranks in nodes]
        return cls(layout, own, places, gradients, spreads, transfers, weights)

    def sets(self) -> list[ProcessSet]:
        """Returns this rank's sets."""
        return [one for one in (self.gradients, self.spreads, self.transfers) if one is not None]
