"""Lets a worker of an elastic job die while a generation begins."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from roundelay.run.agent import member, protocol
from roundelay.torch._internal import generations
from roundelay.torch.elastic import TorchState

STAGES = ("asked", "placed", "meeting", "sync")


def die(stage: str, worker: int, generation: int, late: Path) -> None:
    """Makes this process die at the stage of a generation, if it is this worker.

    asked: it has asked for its place. placed: it has one. meeting: it waits for the others, of whom the last
    rank comes after its death; `late` tells that. sync: the others wait for its state, or for its own sync.
    """
    mine = int(os.environ[protocol.WORKER].split()[0]) == worker
    {"asked": _asked, "placed": _met, "meeting": _met, "sync": _sync}[stage](stage, mine, generation, late)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _asked(_stage: str, mine: bool, generation: int, _late: Path) -> None:
    send, asked = member.Member._send, []

    def deadly(self: Any, kind: bytes, payload: bytes) -> None:
        send(self, kind, payload)
        asked.extend([kind] if kind == protocol.WANTED else [])
        if mine and len(asked) == generation:
            _kill()

    member.Member._send = deadly  # type: ignore[method-assign]


def _met(stage: str, mine: bool, generation: int, late: Path) -> None:
    store = generations._store

    def deadly(place: Any) -> Any:
        if place.generation == generation and mine:
            if stage == "placed":
                _kill()
            late.write_text(str(os.getpid()))
            threading.Timer(0.5, _kill).start()
        elif place.generation == generation and stage == "meeting" and place.rank == place.size - 1:
            while not late.exists() or Path(f"/proc/{late.read_text()}").exists():
                time.sleep(0.01)
        return store(place)

    generations._store = deadly


def _sync(_stage: str, mine: bool, generation: int, _late: Path) -> None:
    sync_from, synced = TorchState.sync_from, []

    def deadly(self: Any, root: int) -> None:
        synced.append(root)
        if mine and len(synced) == generation:
            _kill()
        sync_from(self, root)

    TorchState.sync_from = deadly  # type: ignore[method-assign]
