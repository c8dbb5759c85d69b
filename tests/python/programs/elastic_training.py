"""Trains a small model elastically, and checks at its end that each step counted exactly once.

Arguments: FOLDER RESETS [EVENT]. It ends 10 steps after its ranks have changed RESETS times. EVENT, once in
the job: `kill:RANKS` (they kill themselves at step 23), `raise` (all ranks raise), `leave` (rank 1 exits), or
`STAGE:WORKER:GENERATION` (elastic_stages.py: this worker kills itself while a generation begins; the second
one begins after the last rank has killed itself at step 23).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

import elastic_stages
import roundelay.torch as hvd

FOLDER, RESETS = Path(sys.argv[1]), int(sys.argv[2])
EVENT, _, WHO = (sys.argv[3] if len(sys.argv) > 3 else "").partition(":")
STEPS_BETWEEN_COMMITS, EVENT_AT, MORE = 5, 23, 10


def make() -> tuple[torch.nn.Linear, torch.optim.SGD]:
    """Return a model and its optimizer, the same in each process."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4, dtype=torch.float64)
    return model, torch.optim.SGD(model.parameters(), lr=1 / 64, momentum=0.5)


def backward(model: torch.nn.Linear, step: int, rank: int = 0, size: int = 1) -> None:
    """Give every rank other gradients, whose average is exactly that of one process."""
    value = step % 7 + rank - (size - 1) / 2
    model(torch.full((1, 8), value, dtype=torch.float64)).sum().backward()


def expected(steps: int) -> torch.Tensor:
    """Return the weights after so many steps of one process."""
    model, optimizer = make()
    for step in range(steps):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
    return model.weight.detach()


def happen(state: Any) -> None:
    """Let the event happen, if this is its time."""
    if EVENT == "raise" and state.step >= EVENT_AT:
        raise ValueError("a bug in the program")
    if state.step != EVENT_AT or state.resets > 0:
        return
    if EVENT == "kill" and str(hvd.rank()) in WHO.split(","):
        os.kill(os.getpid(), signal.SIGKILL)
    if EVENT in elastic_stages.STAGES and WHO.endswith(":2") and hvd.rank() == hvd.size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if EVENT == "leave" and hvd.rank() == 1:
        os._exit(0)


def say(**what: Any) -> None:
    """Print one line of JSON, in one write: ranks share the terminal."""
    sys.stdout.write(json.dumps({"pid": os.getpid(), "rank": hvd.rank(), "size": hvd.size(), **what}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Train to the end."""
    if EVENT in elastic_stages.STAGES:
        worker, generation = map(int, WHO.split(":"))
        elastic_stages.die(EVENT, worker, generation, FOLDER / "late")
    hvd.init()
    model, optimizer = make()
    hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    memory = model.weight.data_ptr()
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, resets=0, reset_at=0)

    def count() -> None:
        state.resets, state.reset_at = state.resets + 1, state.step

    state.register_reset_callbacks([count])

    @hvd.elastic.run
    def train(state: Any) -> None:
        say(generation=state.resets, step=state.step, kept=memory == model.weight.data_ptr())
        (FOLDER / f"generation{state.resets}.rank{hvd.rank()}").write_text(str(os.getpid()))
        while state.resets < RESETS or state.step < state.reset_at + MORE:
            optimizer.zero_grad()
            backward(model, state.step, hvd.rank(), hvd.size())
            optimizer.step()
            state.step += 1
            happen(state)
            if state.step % STEPS_BETWEEN_COMMITS == 0:
                state.commit()
            time.sleep(0.01)  # so that a replacement is there before millions of steps

    train(state)
    torch.testing.assert_close(model.weight.detach(), expected(state.step), rtol=0, atol=0)
    say(done=True, step=state.step, resets=state.resets, stats=hvd.stats())


if __name__ == "__main__":
    main()
