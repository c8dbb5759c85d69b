"""NodeSampler: gives each rank its part of an epoch; a node reads the same samples in every epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Sampler

from roundelay import _core
from roundelay.torch.data.arguments import length_of
from roundelay.torch.data.job import node_name
from roundelay.torch.functions import allgather_object

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class NodeSampler(Sampler[int]):
    """A DistributedSampler whose shards stay on their nodes; DataCache then reads each sample once.

    Each node has a shard of the dataset, as large as its number of ranks asks for, chosen by ``seed`` alone.
    Every epoch shuffles the shard and divides it over the node's ranks. Ranks of different nodes therefore
    never exchange samples. All ranks get equally many samples: a shard that is too small repeats some of its
    samples; with ``drop_last`` each shard leaves some out, others in every epoch.

    dataset: has a length. nodes: the number of each rank's node, for example ``[0, 0, 1, 1]``. rank: this
    rank. Without these two the job gives them, and making the sampler is collective over its ranks.
    shuffle: if False, shards are runs of the dataset, in its order. ``set_epoch`` sets the order.

    Raises TypeError for a dataset without length, ValueError for bad arguments and before ``hvd.init()``.
    """

    def __init__(
        self,
        dataset: Any,
        nodes: Sequence[int] | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        length = length_of(dataset, "NodeSampler")
        if nodes is None:
            if rank is not None:
                raise ValueError("NodeSampler: rank= needs nodes=, the node of each rank")
            nodes, rank = _nodes_of_job(), _core.rank()
        if rank is None or not 0 <= rank < len(nodes):
            raise ValueError(
                f"NodeSampler: rank must be from 0 to {len(nodes) - 1}, as nodes= has, not {rank}"
            )
        self._shuffle, self._seed, self._epoch = shuffle, seed, 0
        size = len(nodes)
        self._count = length // size if drop_last else -(-length // size)  # samples of each rank
        own = [other for other, node in enumerate(nodes) if node == nodes[rank]]
        self._place, self._ranks = own.index(rank), len(own)
        self._shard = self._shard_of(list(nodes), nodes[rank], length)

    def _shard_of(self, nodes: list[int], node: int, length: int) -> torch.Tensor:
        """Returns the indices of a node's shard: the runs of its ranks in a fixed order of the dataset."""
        order = torch.arange(length)
        if self._shuffle:
            order = torch.randperm(length, generator=torch.Generator().manual_seed(self._seed))
        each, more = divmod(length, len(nodes))
        # Nodes come one after the other, and the first ranks in this order have one sample more.
        ranked = sorted(nodes, key=nodes.index)
        sizes = [each + (place < more) for place in range(len(nodes))]
        begin = sum(sizes[: ranked.index(node)])
        size = sum(one for one, other in zip(sizes, ranked, strict=True) if other == node)
        # If a dataset has fewer samples than ranks, a node without samples repeats those of all nodes.
        return order[begin : begin + size] if size else order

    def __iter__(self) -> Iterator[int]:
        shard = self._shard
        if self._shuffle:
            generator = torch.Generator().manual_seed(self._seed + self._epoch)
            shard = shard[torch.randperm(len(shard), generator=generator)]
        total = self._count * self._ranks
        if 0 < len(shard) < total:
            shard = shard.repeat(-(-total // len(shard)))
        return iter(shard[:total][self._place :: self._ranks].tolist())

    def __len__(self) -> int:
        return self._count

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, which gives another order. All ranks call it with the same number."""
        self._epoch = epoch


def _nodes_of_job() -> list[int]:
    """Returns the node of each rank, as a number. Collective over all ranks."""
    if not _core.is_initialized():
        raise ValueError("NodeSampler: call hvd.init() first, or give nodes= and rank=")
    name = (node_name(), _BOOT_ID.read_text().strip())
    names = allgather_object(name, name="NodeSampler.nodes") if _core.size() > 1 else [name]
    return [names.index(one) for one in names]
