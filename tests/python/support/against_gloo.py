"""Trains the same model over gloo and over roundelay, and compares the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import nn

from process_groups import world

Train = Callable[[], Sequence[torch.Tensor]]
STEPS = 4
WIDTH = 32
# Two summands have one sum. More are added in another order than Gloo's, and steps carry the difference on.
ULPS = 16


def assert_as_gloo(train: Train) -> None:
    """Checks that `train`, which returns all weights, has the same outcome over both backends.

    On two ranks that are the same bits; else the difference is at most 16 ulps of the tensor's largest value.
    """
    with world("gloo"):
        want = train()
    with world("roundelay"):
        got = train()
        size = dist.get_world_size()
    assert len(got) == len(want)
    for ours, gloos in zip(got, want, strict=True):
        assert ours.dtype == gloos.dtype
        assert ours.shape == gloos.shape
        if size <= 2:
            assert torch.equal(ours, gloos), (ours - gloos).abs().max()
        else:
            close(ours, gloos)


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    """Checks that the difference is at most 16 ulps of the largest value."""
    bound = ULPS * torch.finfo(want.dtype).eps * float(want.abs().max())
    difference = float((got.double() - want.double()).abs().max())
    assert difference <= bound, (difference, bound)


class Model(nn.Module):
    """Three layers, of which `forward(x, all_used=False)` leaves out one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor, all_used: bool = True) -> torch.Tensor:
        """Returns three numbers a row."""
        x = torch.tanh(self.first(x))
        if all_used:
            x = torch.tanh(self.second(x))
        return self.last(x)  # type: ignore[no-any-return]


def batches(count: int = STEPS, rank: int | None = None) -> list[torch.Tensor]:
    """Returns the rank's own batches."""
    values = torch.Generator().manual_seed(100 + (dist.get_rank() if rank is None else rank))
    return [torch.randn(8, WIDTH, generator=values) for _ in range(count)]


def weights(model: nn.Module) -> list[torch.Tensor]:
    """Returns copies of the parameters."""
    return [parameter.detach().clone() for parameter in model.parameters()]


class Turned(nn.Module):
    """A complex weight of ones. Its gradient is as large as 1 + the rank."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(count, dtype=torch.complex64))

    def forward(self) -> torch.Tensor:
        """Returns a loss."""
        return (self.weight * (1 + dist.get_rank())).abs().sum()
