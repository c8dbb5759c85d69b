"""Random tensors on the default device, the same on a GPU as on the CPU."""

from __future__ import annotations

import torch


def normal(generator: torch.Generator, *shape: int) -> torch.Tensor:
    """Returns normal numbers of a CPU generator: a GPU's tensors cannot take theirs from it."""
    return torch.randn(shape, generator=generator, device="cpu").to(torch.get_default_device())
