"""Values whose sums over ranks are exact in every type, so that results can be compared bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from benchmarks import measure


def pattern(count: int, dtype: torch.dtype, offset: int) -> torch.Tensor:
    """Make `count` small integers. `offset` is the rank: few ranks have the same ones."""
    return (torch.arange(count) % 7 + offset).to(dtype)


class Sum:
    """The values of one rank for a sum over ranks 0 to `ranks` - 1, and the expected result."""

    def __init__(self, count: int, dtype: torch.dtype, rank: int, ranks: int) -> None:
        self._own = pattern(count, dtype, rank)
        whole = pattern(count, torch.float64, 0).mul_(ranks).add_(ranks * (ranks - 1) // 2)
        self._expected = whole.to(dtype)

    def fill(self, tensor: torch.Tensor) -> None:
        """Put this rank's values into a tensor of at most `count` elements."""
        tensor.copy_(self._own[: tensor.numel()].view(tensor.shape))

    def check(self, tensor: torch.Tensor, who: str, first: int = 0) -> None:
        """Raise RuntimeError unless these are the sums, from this element on."""
        if not torch.equal(tensor, self._expected[first : first + tensor.numel()].view(tensor.shape)):
            raise RuntimeError(f"{who}: wrong sum of {tensor.numel()} {tensor.dtype}")


class CheckedTurn:
    """Measures how long `run` takes to sum these tensors. Fills them before, checks the sums afterwards."""

    def __init__(
        self,
        name: str,
        tensors: Sequence[torch.Tensor],
        run: Callable[[], object],
        data: Sum,
        ranks: measure.Ranks,
    ) -> None:
        self._name, self._tensors, self._run = name, tensors, run
        self._data, self._ranks = data, ranks

    def __call__(self) -> list[float]:
        """Make one measurement; return the seconds for all tensors together."""
        for tensor in self._tensors:
            self._data.fill(tensor)
        self._ranks.meet()
        seconds = measure.timed(self._run)
        for tensor in self._tensors:
            self._data.check(tensor, self._name)
        return [seconds]
