"""The base of samplers that go on in the middle of an epoch when the ranks have changed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch.utils.data import Sampler


class ProgressSampler(Sampler[int]):
    """Knows the samples of the epoch that the ranks have trained with. reset() divides the others anew.

    A subclass calls reset() at the end of its __init__.
    """

    epoch = 0
    num_replicas: int  # the number of ranks
    rank: int

    def __init__(self) -> None:
        self.processed_indices: set[int] = set()

    @abstractmethod
    def reset(self) -> None:
        """Divides what is left of the epoch over the ranks of now. It sends no message."""

    @abstractmethod
    def indices_of(self, rank: int) -> Sequence[int]:
        """Returns what a rank draws, as reset() has divided it."""

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: nothing of it is processed. All ranks call it with the same number."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Notes that the ranks have trained with their batches of this number, counted since the last reset.

        All ranks' samples count: the step has used them all, also those of a rank that is lost afterwards.
        """
        for rank in range(self.num_replicas):
            self.record_indices(self.indices_of(rank)[batch_idx * batch_size : (batch_idx + 1) * batch_size])

    def record_indices(self, indices: Iterable[int]) -> None:
        """Notes that this rank has trained with these samples."""
        self.processed_indices.update(indices)

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Returns the samples of this rank's batch of this number."""
        return list(self.indices_of(self.rank)[batch_idx * batch_size : (batch_idx + 1) * batch_size])

    def state_dict(self) -> dict[str, Any]:
        """Returns the epoch, and what this rank knows to be processed."""
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a state."""
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices_of(self.rank))
