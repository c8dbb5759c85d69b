"""Trains a small model elastically, and checks at its end that each step counted exactly once.

Arguments: FOLDER RESETS [EVENT]. It ends 10 steps after its ranks have changed RESETS times. EVENT, once in
the job: `kill:RANKS` (these kill themselves at step 23), `raise` (all ranks raise), `leave` (rank 1 exits),
`placed:RANK` and `meeting:RANK` (this rank of the first generation kills itself when it has its place, and
when it waits for the others, of whom one comes after that).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

import roundelay.torch as hvd
from roundelay.torch._internal import generations

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
    if EVENT == "leave" and hvd.rank() == 1:
        os._exit(0)


def die_when_ranks_meet() -> None:
    """Let a rank of the first generation die when it has a place, or when it waits for the others."""
    store = generations._store
    late = FOLDER / "late"

    def deadly(place: Any) -> Any:
        if place.generation == 1 and place.rank == int(WHO):
            if EVENT == "placed":
                os.kill(os.getpid(), signal.SIGKILL)
            late.write_text(str(os.getpid()))
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
        elif EVENT == "meeting" and place.generation == 1 and place.rank == place.size - 1:
            while not late.exists() or Path(f"/proc/{late.read_text()}").exists():
                time.sleep(0.01)
        return store(place)

    generations._store = deadly


def say(**what: Any) -> None:
    """Print one line of JSON, in one write: ranks share the terminal."""
    sys.stdout.write(json.dumps({"pid": os.getpid(), "rank": hvd.rank(), "size": hvd.size(), **what}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Train to the end."""
    if EVENT in ("placed", "meeting"):
        die_when_ranks_meet()
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
    say(done=True, step=state.step, resets=state.resets)


if __name__ == "__main__":
    main()
