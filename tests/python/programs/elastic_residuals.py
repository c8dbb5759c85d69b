"""Trains elastically with strategies that keep gradients back, and checks that no change of ranks loses any.

Arguments: FOLDER LOST STRATEGY..., which are used besides those below. Rank LOST of the first generation
kills itself at step 23. What it had kept back at its last commit, which it has written to a file, is all that
may be missing. The job ends when its replacement has joined. Gradients are whole numbers, and weights count
them.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import roundelay.torch as hvd

FOLDER, LOST = Path(sys.argv[1]), int(sys.argv[2])
STEPS_BETWEEN_COMMITS, KILLED_AT, MORE = 5, 23, 10
STRATEGIES = (
    "topk:density=0.05,momentum=none,dense_below=0",
    "csc:keep=0.2,chunk_elements=8,dense_below=0",
    "power_sgd:rank=1,dense_below=0",
    *sys.argv[3:],
)


def gradient(step: int, rank: int) -> torch.Tensor:
    """Return a rank's gradients of all strategies' weights in a step."""
    chance = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(-8, 9, (len(STRATEGIES), 24, 16), generator=chance).double()


def kept(optimizers: list[torch.optim.Optimizer]) -> torch.Tensor:
    """Return what this rank keeps back."""
    found = torch.zeros(len(STRATEGIES), 24 * 16, dtype=torch.float64)
    for row, optimizer in zip(found, optimizers, strict=True):
        for first, part in hvd.strategies.of(optimizer).context.keeper().residuals.kept().values():
            row[first : first + len(part)] = part
    return found.view(-1, 24, 16)


def check(state: Any, weights: Sequence[torch.Tensor]) -> None:
    """Nothing is kept back now, so the weights are all that came, but for what was lost."""
    want = state.given - state.lost
    for strategy, weight, there in zip(STRATEGIES, weights, want, strict=True):
        tolerance = 1e-9 if strategy.startswith("power_sgd") else 0
        torch.testing.assert_close(-weight.detach(), there, rtol=0, atol=tolerance, msg=strategy)


def main() -> None:
    """Train to the end."""
    hvd.init()
    weights = [torch.nn.Parameter(torch.zeros(24, 16, dtype=torch.float64)) for _ in STRATEGIES]
    optimizers: list[torch.optim.Optimizer] = [
        hvd.DistributedOptimizer(
            torch.optim.SGD([weight], lr=1.0),
            [(f"weight{number}", weight)],
            op=hvd.Sum,
            strategy=STRATEGIES[number],
        )
        for number, weight in enumerate(weights)
    ]
    model = torch.nn.ParameterList(weights)
    zeros = torch.zeros(len(STRATEGIES), 24, 16, dtype=torch.float64)
    state = hvd.elastic.TorchState(
        model=model,
        **{f"optimizer{number}": one for number, one in enumerate(optimizers)},
        step=0, resets=0, reset_at=0, given=zeros, lost=zeros,
    )  # fmt: skip

    def count() -> None:
        if state.resets == 0:
            state.lost = torch.load(FOLDER / f"kept{LOST}", weights_only=True)
            assert all(one.any() for one in state.lost)
        state.resets, state.reset_at = state.resets + 1, state.step

    state.register_reset_callbacks([count])

    def step() -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        own = gradient(state.step, hvd.rank())
        sum((weight * one).sum() for weight, one in zip(weights, own, strict=True)).backward()
        for optimizer in optimizers:
            optimizer.step()
        state.given = state.given + sum(gradient(state.step, rank) for rank in range(hvd.size()))
        state.step += 1

    @hvd.elastic.run
    def train(state: Any) -> None:
        if state.resets > 0:
            step()
            check(state, weights)
        while state.resets == 0 or hvd.size() < 3 or state.step < state.reset_at + MORE:
            step()
            if state.resets == 0 and state.step == KILLED_AT and hvd.rank() == LOST:
                os.kill(os.getpid(), signal.SIGKILL)
            if state.step % STEPS_BETWEEN_COMMITS == 0:
                if state.resets == 0:
                    torch.save(kept(optimizers), FOLDER / f"kept{hvd.rank()}")
                state.commit()
            time.sleep(0.01)  # so that a replacement is there before millions of steps

    train(state)
    for optimizer in optimizers:
        hvd.strategies.of(optimizer).flush()
    step()
    check(state, weights)
    print(f"nothing is lost with {hvd.size()} ranks after {state.resets} changes", flush=True)


if __name__ == "__main__":
    main()
