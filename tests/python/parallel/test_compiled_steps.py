"""torch.compile of optimizer.step(), of zero_grad() and of a whole step: bit-equal to the same without it."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from compiled_training import STEPS, Backend, Training, trained
from ranks import Check, run_check

BACKEND = "RANKS_BACKEND"
PARTS = ("step", "zero_grad", "whole")


@pytest.mark.parametrize(
    ("backend", "np"),
    [
        ("eager", 2),
        ("aot_eager", 2),
        *(pytest.param("eager", np, marks=pytest.mark.nightly) for np in (1, 4)),
    ],
)
def test_compiled_steps(backend: str, np: int, check: Check) -> None:
    run_check(check, np, env={BACKEND: backend})


def _check(part: str, exact: bool = True, **arguments: Any) -> None:
    torch._dynamo.reset()
    backend = Backend(os.environ[BACKEND])
    expected = trained(Training(**arguments), part, None)
    found = trained(Training(**arguments), part, backend)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=0.0 if exact else 1e-4)
        assert torch.equal(one, hvd.broadcast(one, 0))
    if part != "zero_grad":  # which has nothing to compile
        assert any(name.startswith("add") for name in backend.operations), backend.operations
    if part == "whole":
        assert "linear" in backend.operations


def check_the_sum_is_that_of_all_ranks() -> None:
    """As one process on the whole batch."""
    for part in PARTS:
        torch._dynamo.reset()
        found = trained(Training(op=hvd.Sum), part, Backend(os.environ[BACKEND]))
        alone = Training()
        plain = torch.optim.SGD(alone.model.parameters(), lr=0.25)
        for step in range(STEPS):
            plain.zero_grad()
            for rank in range(hvd.size()):
                alone.loss(step % 2, rank).backward()  # type: ignore[no-untyped-call]
            plain.step()
        for one, other in zip(found, alone.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def check_parts() -> None:
    for part in PARTS:
        _check(part)


def check_master_weights() -> None:
    for part in PARTS:
        _check(part, half=True)


def check_an_optimizer_with_state() -> None:
    """A graph adds and multiplies at once, and rounds less."""
    _check("step", exact=False, make=torch.optim.AdamW)
    _check("whole", exact=False, make=torch.optim.AdamW)


def check_strategies() -> None:
    lossy = "csc:keep=0.5,dense_below=0", "topk:density=0.5,dense_below=0,warmup=0", "power_sgd:rank=1"
    for strategy in (*lossy, "local_sgd:period=2"):
        _check("whole", strategy=strategy)
    _check("step", op=hvd.Adasum)


def check_groups_and_passes() -> None:
    _check("whole", groups=1)
    _check("whole", backward_passes_per_step=2)


def check_a_closure() -> None:
    """It is compiled with the step, and its gradients are reduced."""
    results = []
    for backend in (None, Backend(os.environ[BACKEND])):
        torch._dynamo.reset()
        training = Training()

        def closure(training: Training = training) -> torch.Tensor:
            training.optimizer.zero_grad()
            loss = training.loss(0, hvd.rank())
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        step: Any = training.optimizer.step
        step = step if backend is None else torch.compile(step, backend=backend)
        for _ in range(STEPS):
            step(closure)
        results.append(training.parameters())
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def check_one_graph_is_refused_with_the_cure() -> None:
    torch._dynamo.reset()
    step = torch.compile(Training().optimizer.step, backend=os.environ[BACKEND], fullgraph=True)
    with pytest.raises(RuntimeError, match=r"talks to other ranks.*leave out fullgraph=True"):
        step()
