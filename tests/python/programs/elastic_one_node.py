"""Trains elastically by DASO until one of two nodes is lost: the ranks of the other one average gradients.

Argument: a folder, empty. Two workers make a node, and the third one another.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

import roundelay.torch as hvd

FOLDER = Path(sys.argv[1])
COMMIT_AT, DIES_AT, MORE = 3, 6, 12


def my_number() -> int:
    """Return this worker's number among those that have come."""
    for number in range(100):
        try:
            (FOLDER / str(number)).mkdir()
        except FileExistsError:
            continue
        return number
    raise RuntimeError(f"{FOLDER} has too many folders")


def main() -> None:
    """Train until there are two ranks, and a little more."""
    number = my_number()
    os.environ["ROUNDELAY_NODE_ID"] = "A" if number < 2 else "B"
    hvd.init()
    weight = torch.nn.Parameter(torch.zeros(4))
    plain = torch.optim.SGD([weight], lr=0.1)
    daso = hvd.strategies.DASO(4, 1, 4, warmup_epochs=0, cooldown_epochs=0, total_epochs=9)
    optimizer: Any = hvd.DistributedOptimizer(plain, [("weight", weight)], strategy=daso)
    state = hvd.elastic.TorchState(model=torch.nn.ParameterList([weight]), optimizer=optimizer, step=0)
    alone = 0

    @hvd.elastic.run
    def train(state: Any) -> None:
        nonlocal alone
        while alone < MORE:
            optimizer.zero_grad()
            (weight * (hvd.rank() + 1.0)).sum().backward()
            optimizer.step()
            state.step += 1
            alone += int(hvd.size() == 2)
            if state.step == COMMIT_AT and hvd.size() == 3:
                state.commit()
            if state.step == DIES_AT and number == 2:
                os.kill(os.getpid(), signal.SIGKILL)

    train(state)
    every = hvd.allgather(weight.detach()[None])
    print(json.dumps({"equal": bool((every == every[0]).all())}), flush=True)


if __name__ == "__main__":
    main()
