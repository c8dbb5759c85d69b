"""Trains elastically with a fault in the script, which a loss of rank 2 brings to light.

Arguments: FOLDER KIND. "diverged": rank 1 has changed its weights by itself. "set": the newcomer adds a
process set, and the others do not.
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

LOST, KIND = Path(sys.argv[1]) / "lost", sys.argv[2]
STEPS_BETWEEN_COMMITS, CHANGED_AT, KILLED_AT, MORE = 5, 7, 23, 5


def main() -> None:
    """Train until the ranks have changed twice."""
    hvd.init()
    if KIND == "set" and LOST.exists():
        hvd.add_process_set([0, 1])
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, resets=0, reset_at=0)

    def count() -> None:
        state.resets, state.reset_at = state.resets + 1, state.step

    state.register_reset_callbacks([count])

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.resets < 2 or state.step < state.reset_at + MORE:
            optimizer.zero_grad()
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            state.step += 1
            if KIND == "diverged" and state.step == CHANGED_AT and hvd.rank() == 1:
                with torch.no_grad():
                    model.bias.add_(1)
            if state.resets == 0 and state.step == KILLED_AT and hvd.rank() == 2:
                LOST.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if state.step % STEPS_BETWEEN_COMMITS == 0:
                state.commit()
            time.sleep(0.01)  # so that a replacement is there before millions of steps

    train(state)
    print("ended well", flush=True)


if __name__ == "__main__":
    main()
