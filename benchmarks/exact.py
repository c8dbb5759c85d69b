"""Values whose sums over ranks are exact in every type, so that results are compared bit by bit."""

from __future__ import annotations

import torch


def pattern(count: int, dtype: torch.dtype, offset: int) -> torch.Tensor:
    """Make `count` small integers: rank `offset` of few has these."""
    return (torch.arange(count) % 7 + offset).to(dtype)


class Sum:
    """What one rank brings to a sum over ranks 0 to `ranks` - 1, and what comes out."""

    def __init__(self, count: int, dtype: torch.dtype, rank: int, ranks: int) -> None:
        self._own = pattern(count, dtype, rank)
        whole = pattern(count, torch.float64, 0).mul_(ranks).add_(ranks * (ranks - 1) // 2)
        self._expected = whole.to(dtype)

    def fill(self, tensor: torch.Tensor) -> None:
        """Put this rank's values into a tensor of at most `count` elements."""
        tensor.copy_(self._own[: tensor.numel()].view(tensor.shape))

    def check(self, tensor: torch.Tensor, who: str) -> None:
        """Raise RuntimeError unless these are the sums."""
        if not torch.equal(tensor, self._expected[: tensor.numel()].view(tensor.shape)):
            raise RuntimeError(f"{who}: wrong sum of {tensor.numel()} {tensor.dtype}")
