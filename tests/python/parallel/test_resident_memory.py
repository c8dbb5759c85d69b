"""The pool replaces gradients: the C library keeps little of what they were before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from ranks import Check, run_check

_SIZES = (2 << 18, 600, 9 << 16, 2 << 16, 900, 7 << 16) * 8  # elements, as of layers: some large, some small
_STEPS = 15


@pytest.mark.slow
def test_resident_memory(check: Check) -> None:
    run_check(check, 2, fresh=True)


def _heap() -> int:
    """Resident bytes of what malloc() takes small and freed pieces from."""
    found = re.search(r"\[heap\]\n.*?^Rss:\s+(\d+) kB$", Path("/proc/self/smaps").read_text(), re.M | re.S)
    assert found is not None
    return int(found[1]) << 10


def check_gradients_that_were_copied_into_the_pool_leave_no_holes() -> None:
    layers = [nn.Parameter(torch.ones(size)) for size in _SIZES]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layers, lr=0.01))
    before = _heap()
    for _ in range(_STEPS):
        optimizer.zero_grad()
        torch.stack([layer.sum() for layer in layers]).sum().backward()
        optimizer.step()
    assert _heap() - before < 0.5 * sum(layer.nbytes for layer in layers)
