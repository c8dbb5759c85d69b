"""Loses its newest rank over and over, and tells what the ranks that stay hold of the machine.

Argument: LOSSES. The first generation has three ranks. The last rank of each generation with three kills
itself after a few steps, the two others go on, and a replacement joins.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

import roundelay.torch as hvd

LOSSES = int(sys.argv[1])
STEPS = 3


def held() -> dict[str, int]:
    """Return what this process has open, and the bytes that it takes."""
    gc.collect()
    process = Path("/proc/self")
    maps = (process / "maps").read_text().splitlines()
    memory = (process / "status").read_text().partition("VmRSS:")[2].split()[0]
    return {
        "files": len(os.listdir(process / "fd")),
        "threads": len(os.listdir(process / "task")),
        "shared": sum("memfd:" in line or "/dev/shm" in line for line in maps),
        "memory": int(memory) << 10,
    }


def mark(what: str) -> None:
    """Leave a line in a trace of opened files."""
    with contextlib.suppress(FileNotFoundError):
        os.close(os.open(f"/no-such-folder/{what}", os.O_RDONLY))


def main() -> None:
    """Train until so many ranks were lost."""
    hvd.init()
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))  # 2 MiB
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, losses=0, was=hvd.size())

    def count() -> None:
        state.losses += hvd.size() < state.was
        state.was = hvd.size()

    state.register_reset_callbacks([count])

    @hvd.elastic.run
    def train(state: Any) -> None:
        step = 0
        while state.losses < LOSSES or step < STEPS:
            optimizer.zero_grad()
            model(torch.ones(4, 256)).sum().backward()
            optimizer.step()
            step += 1
            if step == STEPS and hvd.size() == 2:
                mark(f"goes_on{state.losses}")
                line = json.dumps({"rank": hvd.rank(), "losses": state.losses, **held()})
                print(line, flush=True)
            if step == STEPS and hvd.size() == 3:
                if hvd.rank() == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                mark(f"loses{state.losses}")
                hvd.barrier()  # waits for nobody: the loss of rank 2 ends it
            state.commit()
            time.sleep(0.01)

    train(state)


if __name__ == "__main__":
    main()
