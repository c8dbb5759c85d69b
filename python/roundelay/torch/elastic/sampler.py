"""A sampler that goes on in the middle of an epoch when the ranks have changed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from torch.utils.data import Sampler

from roundelay.torch._internal.global_state import rank, size

__all__ = ["ElasticSampler"]


class ElasticSampler(Sampler[int]):
    """Divides what is left of an epoch over the ranks. Make it an argument of TorchState.

    The program says what it has trained with, by ``record_batch`` after each step; after a reset the rest is
    divided anew. Ranks get equally many samples: some of the rest are taken twice if it does not divide.

    dataset: has a length. shuffle, seed: the order of an epoch, the same on all ranks.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_indices: set[int] = set()
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: nothing of it is processed."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Notes that the ranks have trained with their batches of this number, counted since the last reset.

        All ranks' samples count: the step has used them all, also those of a rank that is lost afterwards.
        """
        first, end = (
            batch_idx * batch_size * self.num_replicas,
            (batch_idx + 1) * batch_size * self.num_replicas,
        )
        self.record_indices(self._padded[first:end])

    def record_indices(self, indices: Any) -> None:
        """Notes that this rank has trained with these samples."""
        self.processed_indices.update(indices)

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Returns the samples of this rank's batch of this number."""
        return self.indices[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    def reset(self) -> None:
        """Divides what is left of the epoch over the ranks of now."""
        self.num_replicas, self.rank = size(), rank()
        left = [index for index in range(len(self.dataset)) if index not in self.processed_indices]
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(left)
        self.remaining_indices = left
        self.num_samples = -(-len(left) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self._padded = left + (left * self.num_replicas)[: self.total_size - len(left)]
        self.indices = self._padded[self.rank : self.total_size : self.num_replicas]

    def state_dict(self) -> dict[str, Any]:
        """Returns the epoch, and what this rank knows to be processed."""
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a state."""
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
