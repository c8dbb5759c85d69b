"""NodeSampler: gives each rank its part of an epoch; a node reads the same samples in every epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.progress_sampler import ProgressSampler
from roundelay.torch._internal.topology import topology
from roundelay.torch.data.arguments import length_of


class NodeSampler(ProgressSampler):
    """A DistributedSampler whose shards stay on their nodes; DataCache then reads each sample once.

    Each node has a shard of the dataset, as large as its number of ranks asks for, chosen by ``seed`` alone.
    Every epoch shuffles the shard and divides it over the node's ranks. Ranks of different nodes therefore
    never exchange samples. All ranks get equally many samples: a shard that is too small repeats some of its
    samples; with ``drop_last`` each shard leaves some out, others in every epoch.

    dataset: has a length. nodes: the number of each rank's node, for example ``[0, 0, 1, 1]``. rank: this
    rank. Without these two the job gives them. shuffle: if False, shards are runs of the dataset, in its
    order. ``set_epoch`` sets the order.

    In an elastic job make it an argument of TorchState, and call ``record_batch`` after each step. When the
    ranks change, what is left of the epoch is divided over the nodes of now; later epochs have new shards.

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
        super().__init__()
        self._length = length_of(dataset, "NodeSampler")
        if nodes is None and rank is not None:
            raise ValueError("NodeSampler: rank= needs nodes=, the node of each rank")
        if nodes is not None and (rank is None or not 0 <= rank < len(nodes)):
            raise ValueError(
                f"NodeSampler: rank must be from 0 to {len(nodes) - 1}, as nodes= has, not {rank}"
            )
        self._given = None if nodes is None or rank is None else (list(nodes), rank)
        self._shuffle, self._seed, self._drop_last = shuffle, seed, drop_last
        self.reset()

    def reset(self) -> None:
        """Divides what is left of the epoch over the nodes of now."""
        self._nodes, self.rank = self._given or (_nodes_of_job(), _core.rank())
        self.num_replicas = size = len(self._nodes)
        order = torch.arange(self._length)
        if self._shuffle:
            order = torch.randperm(self._length, generator=torch.Generator().manual_seed(self._seed))
        if self.processed_indices:
            order = order[[index not in self.processed_indices for index in order.tolist()]]
        self._left = order
        self._count = len(order) // size if self._drop_last else -(-len(order) // size)
        self._drawn: dict[int, list[list[int]]] = {}  # by node, of each of its ranks

    def indices_of(self, rank: int) -> list[int]:
        """Returns what a rank draws, as reset() has divided it."""
        node = self._nodes[rank]
        if node not in self._drawn:
            self._drawn[node] = self._divided(node)
        return self._drawn[node][self._nodes[:rank].count(node)]

    def _divided(self, node: int) -> list[list[int]]:
        """Returns what each rank of a node draws."""
        shard, ranks = self._shard_of(node), self._nodes.count(node)
        if self._shuffle:
            generator = torch.Generator().manual_seed(self._seed + self.epoch)
            shard = shard[torch.randperm(len(shard), generator=generator)]
        total = self._count * ranks
        if 0 < len(shard) < total:
            shard = shard.repeat(-(-total // len(shard)))
        return [shard[:total][place::ranks].tolist() for place in range(ranks)]

    def _shard_of(self, node: int) -> torch.Tensor:
        """Returns the indices of a node's shard: the runs of its ranks in a fixed order of the dataset."""
        each, more = divmod(len(self._left), len(self._nodes))
        # Nodes come one after the other, and the first ranks in this order have one sample more.
        ranked = sorted(self._nodes, key=self._nodes.index)
        sizes = [each + (place < more) for place in range(len(ranked))]
        begin = sum(sizes[: ranked.index(node)])
        size = sum(one for one, other in zip(sizes, ranked, strict=True) if other == node)
        # If there are fewer samples than ranks, a node without samples repeats those of all nodes.
        return self._left[begin : begin + size] if size else self._left

    def __len__(self) -> int:
        return self._count


def _nodes_of_job() -> list[int]:
    """Returns the node of each rank, as a number."""
    if not _core.is_initialized():
        raise ValueError("NodeSampler: call hvd.init() first, or give nodes= and rank=")
    parts = topology().levels[0].parts
    nodes = {rank: number for number, part in enumerate(parts) for rank in part.ranks}
    return [nodes[rank] for rank in range(_core.size())]
