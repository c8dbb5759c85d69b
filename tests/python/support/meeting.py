"""Lets ranks of one node wait for each other without Roundelay: one tells of an event, others wait for it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import roundelay.torch as hvd
from in_time import TooLateError

PATIENCE_S = 20.0


class Meeting:
    """Events that the ranks of a node tell of. Each is a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def tell(self, event: str) -> None:
        """Tells the other ranks that this rank's event has come."""
        (self._folder / f"{event}.{hvd.rank()}").touch()

    def wait_for(self, event: str, *ranks: int, patience_s: float = PATIENCE_S) -> None:
        """Waits for the event on these ranks, without Roundelay. Fails after `patience_s`."""
        missing = [self._folder / f"{event}.{rank}" for rank in ranks]
        deadline = time.monotonic() + patience_s
        while missing := [file for file in missing if not file.exists()]:
            if time.monotonic() > deadline:
                raise TooLateError(f"not told of {[file.name for file in missing]}")
            time.sleep(0.01)


@contextlib.contextmanager
def meeting() -> Iterator[Meeting]:
    """A meeting of all ranks. They enter and leave it together."""
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    yield Meeting(Path(folder))
    hvd.barrier()
    if hvd.rank() == 0:
        shutil.rmtree(folder)
