"""Runs bare.cc, a small program that does only the necessary memory work of an allreduce."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import Ranks, Turn

_SOURCE = Path(__file__).with_suffix(".cc")
FLAGS = ("-std=c++20", "-O3", "-march=native")


def compiler() -> list[str] | None:
    """Return the system's C++ compiler: CXX, or the first that exists; None if there is none."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    return next(([name] for name in ("c++", "g++", "clang++") if shutil.which(name)), None)


def build(folder: Path) -> Path:
    """Compile bare.cc into the folder."""
    program = folder / "bare"
    command = compiler()
    assert command is not None
    subprocess.run([*command, *FLAGS, str(_SOURCE), "-o", str(program)], check=True)
    return program


class Program:
    """The running program. Its processes sleep between measurements."""

    def __init__(self, program: Path, ranks: int, size: int, rounds: int = 1) -> None:
        self._process = subprocess.Popen(
            [program, str(ranks), str(size), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self) -> float:
        """Make one measurement: return the seconds of the slowest rank in the median round.

        Raises RuntimeError if the program has failed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"bare has failed: exit code {self._process.wait()}")
        return float(answer)

    def close(self) -> int:
        """End the program; return its exit code."""
        self._process.communicate(timeout=10)
        return self._process.returncode


class Bare:
    """The program's turn in a benchmark: rank 0 makes the program work, and the other ranks sleep."""

    def __init__(self, size: int, spec: Mapping[str, Any], ranks: Ranks, rounds: int) -> None:
        self._ranks = ranks
        self._program: Program | None = None
        if ranks.rank == 0:
            self._program = Program(build(Path(spec["folder"])), ranks.size, size, rounds)

    def __enter__(self) -> Bare:
        return self

    def __exit__(self, *_: object) -> None:
        if self._program is not None:
            self._program.close()

    def __call__(self) -> list[float]:
        """Return the seconds of the slowest process, on rank 0."""
        self._ranks.rest()
        seconds = 0.0 if self._program is None else self._program.measure()
        self._ranks.rest()
        return [seconds]


@contextmanager
def floor(size: int, spec: Mapping[str, Any], ranks: Ranks, rounds: int = 1) -> Iterator[dict[str, Turn]]:
    """Yield the program's turn of `rounds` rounds by its name; nothing if the spec does not ask for it."""
    if not spec["bare"]:
        yield {}
        return
    with Bare(size, spec, ranks, rounds) as bare:
        yield {"bare": bare}
