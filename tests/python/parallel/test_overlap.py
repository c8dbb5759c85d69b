"""Communication runs beside backward: what is there is reduced before the last gradient is.

The fabric is as slow as can be: nothing moves before rank 0's backward has come to its last hook, as the
others do not begin theirs earlier. There rank 0 waits until all that it has submitted is reduced.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import roundelay.torch as hvd
from in_time import wait_until
from ranks import Check, run_check
from roundelay.torch._internal.optimizer.distributed import wrapper_of

LAYERS = 6
WIDTH = 256  # a layer's gradient fills a bucket
STEPS = 8  # each gradient by itself, then in a pool, then without negotiation
PATIENCE_S = 60.0  # only where nothing is ever submitted


@pytest.mark.parametrize("fabric", ["shm", "tcp", "mpi"])
def test_overlap(fabric: str, check: Check) -> None:
    theta = str(4 * WIDTH * WIDTH)
    run_check(check, 2, env={"ROUNDELAY_FABRIC": fabric, "ROUNDELAY_THETA": theta})


class Reduced:
    """How many tensors were, since this was made."""

    def __init__(self) -> None:
        self._before = hvd.stats()["tensors"]

    def __call__(self) -> int:
        return hvd.stats()["tensors"] - self._before


def check_all_but_the_last_are_reduced_before_the_last_hook() -> None:
    folder = Path(hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None))
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    wrapper = wrapper_of(optimizer)
    assert wrapper is not None
    last_hooks: list[Callable[[], None]] = []
    layers[0].weight.register_hook(lambda _: last_hooks.pop()())
    pooled = 0
    for step in range(STEPS):
        buckets = wrapper.buckets()
        pooled += buckets > 0
        others = (buckets or LAYERS) - 1
        assert others >= LAYERS // 2
        begins, reduced = folder / str(step), Reduced()

        def in_the_last_hook(others: int = others, begins: Path = begins, reduced: Reduced = reduced) -> None:
            if hvd.rank() == 0:
                assert reduced() == 0, "a hook waited for what no other rank has submitted"
                begins.touch()
            wait_until(
                lambda: reduced() >= others,
                PATIENCE_S,
                f"{reduced()} of {others} were submitted before the last",
            )
            assert reduced() == others

        last_hooks.append(in_the_last_hook)
        optimizer.zero_grad()
        loss = model(torch.ones(1, WIDTH)).sum()
        if hvd.rank() > 0:
            wait_until(begins.exists, PATIENCE_S, "rank 0 has not come to its last hook")
        loss.backward()
        assert not last_hooks
        optimizer.step()
    assert pooled >= STEPS // 2
