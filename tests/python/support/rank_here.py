"""This process as a rank of a test's job: what it tells the test, what it waits for, and how it dies."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_S = 0.01
_NUMBER = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "SLURM_PROCID")  # the launchers' variables


class Rank:
    """A rank, with a folder for what it and the test tell each other.

    Args:
        folder: the folder, which all ranks have.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = int(next(filter(None, map(os.environ.get, _NUMBER)), "0"))

    def init(self) -> None:
        """Calls `hvd.init()`, and tells of it."""
        import torch

        import roundelay.torch as hvd

        torch.set_num_threads(1)
        hvd.init()
        self.ready()

    def tell(self, name: str, text: str = "") -> None:
        """Writes a file. Who finds it finds all of the text."""
        part = self.folder / f".{name}.{self.number}"
        part.write_text(text)
        part.rename(self.folder / name)

    def wait_for(self, *names: str) -> None:
        """Returns when these files are there."""
        while not all((self.folder / name).exists() for name in names):
            time.sleep(POLL_S)

    def ready(self) -> None:
        """Tells that this rank runs."""
        self.tell(f"ready.{self.number}", str(os.getpid()))

    def meet(self, count: int) -> None:
        """Returns when so many ranks are ready."""
        self.ready()
        self.wait_for(*(f"ready.{rank}" for rank in range(count)))

    def stamp(self) -> None:
        """Notes the time of the failure."""
        self.tell("failed_at", str(time.time()))

    def wait_for_end(self, rank: int) -> None:
        """Returns when another rank, which was ready, is dead."""
        process = Path("/proc", (self.folder / f"ready.{rank}").read_text())
        while process.exists():
            time.sleep(POLL_S)

    def outlive(self, lost: int, text: str) -> None:
        """Prints the text 1.6 s after the other's end, or when told to end. Ends this rank.

        It is told to end 2.5 s after the other's end, and not before 1.5 s.
        """
        self.wait_for("failed_at")
        self.wait_for_end(lost)

        def say(*_: object) -> None:
            lived_s = time.time() - float((self.folder / "failed_at").read_text())
            print(text if lived_s > 1.5 else f"told to end after {lived_s} s", flush=True)
            os._exit(1)

        signal.signal(signal.SIGTERM, say)
        time.sleep(1.6)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        say()

    def die(self) -> None:
        """Kills this rank."""
        self.stamp()
        os.kill(os.getpid(), signal.SIGKILL)

    def die_watched(self, seconds: float, ranks: int) -> None:
        """Kills this rank so long after all others have come to `watched()`."""

        def wait() -> None:
            self.wait_for(*(f"watching.{rank}" for rank in range(ranks) if rank != self.number))
            time.sleep(seconds)
            self.die()

        during(0.0, wait)

    def note(self, error: BaseException) -> None:
        """Tells the error that was raised."""
        seen = {"type": type(error).__name__, "text": str(error), "at": time.time()}
        self.tell(f"seen.{self.number}", json.dumps(seen))

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Notes the error that the block raises, and raises it again."""
        self.tell(f"watching.{self.number}")
        try:
            yield
        except Exception as error:
            self.note(error)
            raise


def during(seconds: float, action: Callable[[], object]) -> None:
    """Does it after so many seconds, in a thread that keeps nobody alive."""
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
