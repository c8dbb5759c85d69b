"""Trains elastically with an optimizer of some kind: a rank is lost, its replacement joins, all end alike.

Argument: lars, lamb, masters, scaler, auto or auto_lossy.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import torch

import roundelay.torch as hvd
from roundelay.torch._internal.tuning import pool_tuner

KIND = sys.argv[1]
DIES_AT, MORE = 23, 20
SPARSE_STEPS = 13  # a commit has them, and what topk keeps back


def optimizer_for(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the kind's optimizer, wrapped."""
    if KIND == "lars":
        plain: torch.optim.Optimizer = hvd.optim.LARS(model.parameters(), lr=0.1, momentum=0.9)
    elif KIND == "lamb":
        plain = hvd.optim.LAMB(model.parameters(), lr=0.01)
    elif KIND == "auto_lossy":
        plain = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)  # whose momentum topk has, too
    else:
        plain = torch.optim.AdamW(model.parameters(), lr=0.01)
    options: dict[str, Any] = {"master_weights": True} if KIND == "masters" else {}
    if KIND == "auto":
        options["strategy"] = "auto"
    elif KIND == "auto_lossy":
        options["strategy"] = hvd.strategies.Auto(("topk:density=0.1,dense_below=0",), trial_steps=1)
    return hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters(), **options)


class SparseSteps:
    """Counts steps with topk, in a row. They seem short to the search, which keeps them."""

    def __init__(self, auto: hvd.strategies.Auto) -> None:
        self._auto, self._now, self.number = auto, 0.0, 0
        setattr(pool_tuner, "time", self)  # noqa: B010

    def perf_counter(self) -> float:
        """Return the search's time."""
        self._now += 1.0 if 1 in self._auto.plan else 2.0
        return self._now

    def step_over(self) -> None:
        """Count a step."""
        self.number = self.number + 1 if 1 in self._auto.plan else 0


def main() -> None:
    """Train until the ranks have changed twice, and a little more."""
    hvd.init()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    dtype = torch.bfloat16 if KIND == "masters" else torch.float32
    model.to(dtype)
    optimizer = optimizer_for(model)
    scaler = torch.amp.GradScaler("cpu", enabled=KIND == "scaler")
    state = hvd.elastic.TorchState(
        model=model, optimizer=optimizer, scaler=scaler, step=0, resets=0, reset_at=0
    )

    def count() -> None:
        state.resets, state.reset_at = state.resets + 1, state.step

    state.register_reset_callbacks([count])
    auto = hvd.strategies.of(optimizer)
    sparse = SparseSteps(auto) if KIND == "auto_lossy" and isinstance(auto, hvd.strategies.Auto) else None

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.resets < 2 or state.step < state.reset_at + MORE:
            optimizer.zero_grad()
            batch = torch.full((8, 16), float(state.step % 5 + hvd.rank()), dtype=dtype)
            scaler.scale((model(batch) - 1).float().square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            state.step += 1
            if sparse is not None:
                sparse.step_over()
            ready = state.step == DIES_AT if sparse is None else sparse.number == SPARSE_STEPS
            if ready and state.resets == 0 and hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if state.step % 5 == 0:
                state.commit()
            time.sleep(0.01)

    train(state)
    weights = torch.cat([parameter.detach().float().flatten() for parameter in model.parameters()])
    first = hvd.broadcast(weights, 0)
    print(json.dumps({"equal": torch.equal(weights, first), "steps": state.step}), flush=True)


if __name__ == "__main__":
    main()
