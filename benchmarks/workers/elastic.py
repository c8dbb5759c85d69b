"""Trains elastically while ranks are lost; rank 0 measures how the others go on.

Arguments: FILE for the seconds, thousands of parameters, and what is lost. "rank": rank 1 of the first
generation kills itself, and its replacement joins. "node": another process takes a node away when FILE.begun
is there, and none comes instead.
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

import roundelay.torch as hvd

_LOST_AT, _COMMIT_EVERY, _MORE = 20, 5, 10
_PARTS = 16  # tensors of the model


def main(found: Path, thousands: int, lost: str) -> None:
    """Train until the replacement has trained, too; or until those have that are left."""
    changes = 2 if lost == "rank" else 1
    hvd.init()
    parts = [torch.nn.Parameter(torch.zeros(thousands * 1000 // _PARTS)) for _ in range(_PARTS)]
    optimizer = torch.optim.SGD(parts, lr=0.1, momentum=0.9)
    hvd.DistributedOptimizer(optimizer, named_parameters=[(f"part{i}", part) for i, part in enumerate(parts)])
    state = hvd.elastic.TorchState(optimizer=optimizer, parts=_Parts(parts), step=0, resets=0, last=0)
    seconds: dict[str, float] = {}
    ended_at = time.monotonic()

    def count() -> None:
        state.resets, state.last = state.resets + 1, state.step + _MORE

    state.register_reset_callbacks([count])

    @hvd.elastic.run
    def train(state: Any) -> None:
        nonlocal ended_at
        first = True
        while state.resets < changes or state.step < state.last:
            optimizer.zero_grad()
            torch.stack([part.sum() for part in parts]).sum().backward()
            optimizer.step()
            now = time.monotonic()
            if first and state.resets > 0:
                seconds["lost" if state.resets == 1 else "joined"] = now - ended_at
            if first and state.resets == 1:
                seconds["since"] = ended_at
            if first and state.resets == 2:
                seconds["ready"] = ended_at - seconds.pop("since", ended_at)
            first, ended_at = False, now
            state.step += 1
            if state.step == _LOST_AT and state.resets == 0:
                if lost == "rank" and hvd.rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                if hvd.rank() == 0:
                    found.with_suffix(".begun").touch()
            if state.step % _COMMIT_EVERY == 0:
                begin = time.monotonic()
                state.save()
                seconds["commit"] = time.monotonic() - begin
                state.commit()
                ended_at = time.monotonic()

    train(state)
    if hvd.rank() == 0:
        found.write_text(json.dumps(seconds))


class _Parts(torch.nn.Module):
    """The parameters, as a model."""

    def __init__(self, parts: list[torch.nn.Parameter]) -> None:
        super().__init__()
        self.parts = torch.nn.ParameterList(parts)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
