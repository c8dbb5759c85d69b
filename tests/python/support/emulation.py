"""A `roundelay emulate` of a test. Finds each process that it leaves, also those without its variables."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import starts
from in_time import wait_until

COMMAND = [sys.executable, "-m", "roundelay", "emulate"]
LIMIT_S = 100.0
# Ranks begin with this: they say in which namespace of process numbers they are, and their number there.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
here = Path(sys.argv[1])
(here / f".{rank}").write_text(f"{os.readlink('/proc/self/ns/pid')} {os.getpid()}")
(here / f".{rank}").rename(here / f"ready.{rank}")
"""


class Emulation:
    """One command, whose temporary files are in a folder of its own. Ends it, if it has not ended."""

    def __init__(self, folder: Path, body: str, *flags: str, before: Sequence[str] = (), **more: str) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self._mark = f"EMULATION={folder}"
        (folder / "program.py").write_text(PROGRAM + body)
        words = [*before, *COMMAND, *flags, "--", sys.executable, str(folder / "program.py"), str(folder)]
        self.process = subprocess.Popen(
            words,
            env=starts.environment(TMPDIR=str(self.temporary), EMULATION=str(folder), **more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Emulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_ready(self, ranks: int) -> list[int]:
        """Waits until so many ranks run; returns their pids, as their nodes know them."""
        files = [self.folder / f"ready.{rank}" for rank in range(ranks)]
        wait_until(lambda: all(file.exists() for file in files) or self.ended(), LIMIT_S, "not all ranks run")
        assert not self.ended(), self.process.communicate()
        return [int(file.read_text().split()[1]) for file in files]

    def ended(self) -> bool:
        return self.process.poll() is not None

    def finish(self) -> tuple[int, str, str]:
        """Waits for the end, after which nothing may be left. Returns the exit status, stdout and stderr."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        wait_until(lambda: not self.left(), LIMIT_S, "processes are left", self.left)
        assert list(self.temporary.iterdir()) == []
        return self.process.returncode, out, err

    def left(self) -> list[str]:
        """Returns the words of each process that was started by the command, or runs on its nodes."""
        spaces = {file.read_text().split()[0] for file in self.folder.glob("ready.*")}
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                marked = self._mark.encode() in (entry / "environ").read_bytes().split(b"\0")
                if marked or os.readlink(entry / "ns" / "pid") in spaces:
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:  # it has ended by itself
                continue
        return found
