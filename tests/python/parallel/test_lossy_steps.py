"""Steps with csc and topk in which more happens: overflows, and buckets that come in their midst."""

from __future__ import annotations

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, run_check

_CHUNKS = "chunk_elements=1024,dense_below=0"


@pytest.mark.parametrize("np", [2, *(pytest.param(np, marks=pytest.mark.slow) for np in (3, 4))])
def test_lossy_steps(np: int, check: Check) -> None:
    run_check(check, np)


def _wrapped(strategy: str, *sizes: int) -> tuple[list[torch.nn.Parameter], torch.optim.SGD]:
    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    named = [(f"p{number}", parameter) for number, parameter in enumerate(parameters)]
    hvd.DistributedOptimizer(optimizer, named, strategy=strategy)
    return parameters, optimizer


def check_an_overflow_is_seen_beside_a_frozen_layer() -> None:
    """Its mark is in the first layer of the bucket: that of which backward brings the gradient first."""
    for strategy in (f"csc:keep=0.25,{_CHUNKS}", "topk:density=0.1,dense_below=0", "dense"):
        (first, last), optimizer = _wrapped(strategy, 12288, 4096)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

        def step(
            factor: float,
            layers: tuple[torch.nn.Parameter, torch.nn.Parameter] = (first, last),
            optimizer: torch.optim.SGD = optimizer,
            scaler: torch.amp.GradScaler = scaler,
        ) -> None:
            optimizer.zero_grad()
            factors = torch.ones(12288)
            factors[100] = factor
            loss = (layers[0] * factors).sum() + layers[1].sum()
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()

        for _ in range(5):
            step(1.0)
        last.requires_grad_(False)
        before = first.detach().clone()
        step(float("inf") if hvd.rank() == 1 else 1.0)
        assert scaler.get_scale() == 2.0
        assert torch.equal(first, before)


def check_an_overflow_reaches_the_weights_without_a_scaler() -> None:
    for momentum in ("masked", "local", "none"):
        (weights,), optimizer = _wrapped(f"csc:keep=0.1,momentum={momentum},{_CHUNKS}", 16384)
        for step in range(6):
            optimizer.zero_grad()
            factors = torch.linspace(1.0, 2.0, 16384)
            if step == 5 and hvd.rank() == 1:
                factors[9000:10000] = float("nan")
            (weights * factors).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            assert bool(weights.isnan().any()) == (step == 5)


def check_buckets_that_come_between_two_backwards() -> None:
    """What ranks have reduced before in the step is a part of it, though the buckets have not sent it."""
    for momentum in ("masked", "none"):
        (weights,), optimizer = _wrapped(f"csc:keep=0.25,momentum={momentum},{_CHUNKS}", 8192)
        for _ in range(6):
            optimizer.zero_grad()
            for factor in (1.0, 2.0, 4.0):
                (weights * factor).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        for _ in range(2):
            hvd.strategies.of(optimizer).flush()
            optimizer.zero_grad()
            (weights * 0.0).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        assert set(weights.tolist()) == {-42.0}
