"""An optimizer's techniques, in the tests that look into them."""

from __future__ import annotations

import torch

from roundelay.torch._internal.optimizer.distributed import wrapper_of
from roundelay.torch._internal.optimizer.techniques import Techniques


def techniques_of(optimizer: torch.optim.Optimizer) -> Techniques:
    """Returns the techniques of the buckets."""
    wrapper = wrapper_of(optimizer)
    assert wrapper is not None
    techniques = wrapper.techniques()
    assert techniques is not None
    return techniques


def state_of_one_bucket(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """Returns the bytes that the technique of the only bucket keeps."""
    (bucket,) = techniques_of(optimizer).table.buckets
    state = bucket.core.state
    assert state is not None
    return state
