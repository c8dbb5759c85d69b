"""Trains elastically with a strategy that averages weights, and checks with which average others begin.

Arguments: FOLDER STRATEGY LOST. Rank LOST of the first generation kills itself at step 23. The others begin
with the mean of their own weights at their last commit, which they have written to files. When the
replacement has joined, all ranks begin with the mean of all that there were.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

import roundelay.torch as hvd

FOLDER, STRATEGY, LOST = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
STEPS_BETWEEN_COMMITS, KILLED_AT, MORE = 5, 23, 12


def file_of(generation: int, rank: int, step: int) -> Path:
    """Return the file in which a rank writes its weights before a commit."""
    return FOLDER / f"weights{generation}.{rank}.{step}"


def main() -> None:
    """Train to the end."""
    if os.environ.get("NODE_EACH"):  # each rank is a node
        os.environ["ROUNDELAY_NODE_ID"] = str(os.getpid())
    hvd.init()
    weight = torch.nn.Parameter(torch.zeros(8, dtype=torch.float64))
    optimizer: Any = torch.optim.SGD([weight], lr=1.0)
    hvd.DistributedOptimizer(optimizer, [("weight", weight)], strategy=STRATEGY)
    state = hvd.elastic.TorchState(
        model=torch.nn.ParameterList([weight]), optimizer=optimizer, step=0, resets=0, reset_at=0, size=0
    )
    differed = 0

    def count() -> None:
        state.resets, state.reset_at = state.resets + 1, state.step

    state.register_reset_callbacks([count])

    @hvd.elastic.run
    def train(state: Any) -> None:
        nonlocal differed
        if state.resets > 0:
            ranks = [rank for rank in range(state.size) if state.resets > 1 or rank != LOST]
            files = [file_of(state.resets - 1, rank, state.step) for rank in ranks]
            every = torch.stack([torch.load(file, weights_only=True) for file in files])
            torch.testing.assert_close(weight.detach(), every.mean(0), rtol=0, atol=1e-12)
        state.size = hvd.size()
        while state.resets == 0 or hvd.size() < 3 or state.step < state.reset_at + MORE:
            optimizer.zero_grad()
            (weight * torch.arange(8) * (hvd.rank() + 1 + state.step % 3)).sum().backward()
            optimizer.step()
            state.step += 1
            if state.resets == 0 and state.step == KILLED_AT and hvd.rank() == LOST:
                os.kill(os.getpid(), signal.SIGKILL)
            if state.step % STEPS_BETWEEN_COMMITS == 0:
                torch.save(weight.detach().clone(), file_of(state.resets, hvd.rank(), state.step))
                every = hvd.allgather(weight.detach()[None])
                differed += int((every != every[0]).any())
                state.commit()
            time.sleep(0.01)  # so that a replacement is there before millions of steps

    train(state)
    strategy: Any = hvd.strategies.of(optimizer)
    strategy.average()
    every = hvd.allgather(weight.detach()[None])
    assert (every == every[0]).all()
    assert differed > 0
    print(f"averaged with {hvd.size()} ranks after {state.resets} changes", flush=True)


if __name__ == "__main__":
    main()
