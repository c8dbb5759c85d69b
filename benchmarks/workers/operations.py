"""Blocking operations of Roundelay on a vector of so many bytes, each with its check."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.exact import Sum, pattern


class Operation(ABC):
    """One operation. `size`: the bytes of the whole vector."""

    def __init__(self, size: int, ranks: measure.Ranks) -> None:
        self._count, self._ranks = size // 4, ranks
        self._name = f"bench.{type(self).__name__}.{size}"

    @abstractmethod
    def run(self) -> object:
        """Run it once, with any values."""

    @abstractmethod
    def check(self, who: str) -> None:
        """Run it once with known values. RuntimeError: the result is wrong."""

    def _require(self, found: torch.Tensor, expected: torch.Tensor, who: str) -> None:
        if not torch.equal(found, expected):
            raise RuntimeError(f"{who}: {type(self).__name__} of {4 * self._count} bytes has a wrong result")


class Allreduce(Operation):
    """All ranks get the sum of their vectors."""

    def __init__(self, size: int, ranks: measure.Ranks) -> None:
        super().__init__(size, ranks)
        self._data = Sum(self._count, torch.float32, ranks.rank, ranks.size)
        self._tensor = torch.empty(self._count)

    def run(self) -> object:
        """Sum in place."""
        return hvd.allreduce_(self._tensor, name=self._name, op=hvd.Sum)

    def check(self, who: str) -> None:
        """Compare the sum, and clear it, so that any number of sums stays exact."""
        self._data.fill(self._tensor)
        self.run()
        self._data.check(self._tensor, who)
        self._tensor.zero_()


class Allgather(Operation):
    """All ranks get the vector, of which each has a part."""

    def __init__(self, size: int, ranks: measure.Ranks) -> None:
        super().__init__(size, ranks)
        self._part = pattern(self._count // ranks.size, torch.float32, ranks.rank)

    def run(self) -> torch.Tensor:
        """Gather the parts."""
        return hvd.allgather(self._part, name=self._name)

    def check(self, who: str) -> None:
        """Compare all parts."""
        every = [pattern(self._part.numel(), torch.float32, rank) for rank in range(self._ranks.size)]
        self._require(self.run(), torch.cat(every), who)


class Reducescatter(Operation):
    """Each rank gets its part of the sum of the vectors."""

    def __init__(self, size: int, ranks: measure.Ranks) -> None:
        super().__init__(size, ranks)
        self._each = self._count // ranks.size
        self._data = Sum(self._each * ranks.size, torch.float32, ranks.rank, ranks.size)
        self._tensor = torch.empty(self._each * ranks.size)
        self._data.fill(self._tensor)

    def run(self) -> torch.Tensor:
        """Sum, and take this rank's part."""
        return hvd.reducescatter(self._tensor, name=self._name, op=hvd.Sum)

    def check(self, who: str) -> None:
        """Compare this rank's part."""
        self._data.check(self.run(), who, self._each * self._ranks.rank)


class Broadcast(Operation):
    """All ranks get the vector of the last rank, which is not the first one of its node."""

    def __init__(self, size: int, ranks: measure.Ranks) -> None:
        super().__init__(size, ranks)
        self._tensor = torch.empty(self._count)
        self._root = ranks.size - 1

    def run(self) -> object:
        """Take the root's values."""
        return hvd.broadcast_(self._tensor, self._root, name=self._name)

    def check(self, who: str) -> None:
        """Compare them."""
        self._tensor.copy_(pattern(self._count, torch.float32, self._ranks.rank))
        self.run()
        self._require(self._tensor, pattern(self._count, torch.float32, self._root), who)


ALLREDUCE = "allreduce"
OPERATIONS: dict[str, Callable[[int, measure.Ranks], Operation]] = {
    ALLREDUCE: Allreduce,
    "allgather": Allgather,
    "reducescatter": Reducescatter,
    "broadcast": Broadcast,
}
