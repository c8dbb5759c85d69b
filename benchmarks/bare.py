"""The bare memory work of an allreduce: a small program that does only what cannot be left out (bare.cc)."""

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
    """Name the system's C++ compiler: CXX, or the first that is there; None if none is."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    return next(([name] for name in ("c++", "g++", "clang++") if shutil.which(name)), None)


def build(folder: Path) -> Path:
    """Compile bare.cc into the folder, with the compiler that there is."""
    program = folder / "bare"
    command = compiler()
    assert command is not None
    subprocess.run([*command, *FLAGS, str(_SOURCE), "-o", str(program)], check=True)
    return program


class Program:
    """The running program: its processes sleep between measurements."""

    def __init__(self, program: Path, ranks: int, size: int, rounds: int = 1) -> None:
        self._process = subprocess.Popen(
            [program, str(ranks), str(size), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self) -> float:
        """Make one measurement: seconds of the slowest rank, in the median round.

        RuntimeError if the program has failed.
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
        """End it; returns its exit code."""
        self._process.communicate(timeout=10)
        return self._process.returncode


class Bare:
    """Its turns among those of the contenders: rank 0 has it work, and the others sleep."""

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
        """Seconds of its slowest process, on rank 0."""
        self._ranks.rest()
        seconds = 0.0 if self._program is None else self._program.measure()
        self._ranks.rest()
        return [seconds]


@contextmanager
def floor(size: int, spec: Mapping[str, Any], ranks: Ranks, rounds: int = 1) -> Iterator[dict[str, Turn]]:
    """Make its turn, of so many rounds in a row, under its name; none where the spec asks for none."""
    if not spec["bare"]:
        yield {}
        return
    with Bare(size, spec, ranks, rounds) as bare:
        yield {"bare": bare}
