"""Trains as elastic_training.py does, under torchrun: rank 1 of the first attempt kills itself."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import torch

import roundelay.torch as hvd

DIES_AT, STEPS, STEPS_BETWEEN_COMMITS = 23, 40, 5
ATTEMPT = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def main() -> None:
    """Train to the end, and say which steps this attempt has made."""
    hvd.init()
    torch.manual_seed(ATTEMPT)  # the state comes from the commit alone
    model = torch.nn.Linear(8, 4, dtype=torch.float64)
    if ATTEMPT == 0:
        torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1 / 64, momentum=0.5)
    hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)

    @hvd.elastic.run
    def train(state: Any) -> None:
        begin = state.step
        while state.step < STEPS:
            optimizer.zero_grad()
            model(torch.full((1, 8), state.step % 7 + hvd.rank() - 0.5, dtype=torch.float64)).sum().backward()
            optimizer.step()
            state.step += 1
            if state.step == DIES_AT and ATTEMPT == 0 and hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if state.step % STEPS_BETWEEN_COMMITS == 0:
                state.commit()
        line = {"attempt": ATTEMPT, "begin": begin, "agent": os.getppid(), "weights": model.weight.tolist()}
        sys.stdout.write(json.dumps(line) + "\n")

    train(state)


if __name__ == "__main__":
    main()
