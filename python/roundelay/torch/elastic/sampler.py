"""A sampler that divides what is left of an epoch over the ranks."""

from __future__ import annotations

import random
from typing import Any

from roundelay.torch._internal.global_state import rank, size
from roundelay.torch._internal.progress_sampler import ProgressSampler

__all__ = ["ElasticSampler"]


class ElasticSampler(ProgressSampler):
    """Divides what is left of an epoch over the ranks. Make it an argument of TorchState.

    The program says what it has trained with, by ``record_batch`` after each step; after a reset the rest is
    divided anew. Ranks get equally many samples: some of the rest are taken twice if it does not divide.

    dataset: has a length. shuffle, seed: the order of an epoch, the same on all ranks.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        super().__init__()
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.reset()

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
        self.indices = self.indices_of(self.rank)

    def indices_of(self, rank: int) -> list[int]:
        """Returns what a rank draws, as reset() has divided it."""
        return self._padded[rank : self.total_size : self.num_replicas]

    def __len__(self) -> int:
        return self.num_samples
