"""Everything that can be checked: `make nightly`, or `python tools/nightly.py [STEP ...]`.

One step after the other; one that fails does not end the others. Each says what it did in
out/nightly/STEP.log; the table at the end is in out/nightly/summary.txt, too. Exit code 1: a step failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "out" / "nightly"
PYTHON = sys.executable


@contextmanager
def busy_cores() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep all cores busy inside the block, with one process each."""
    processes = [subprocess.Popen([PYTHON, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Step:
    """One step. The first command that fails ends it. `beside` runs while the step does."""

    what: str
    commands: tuple[tuple[str, ...], ...]
    beside: Callable[[], AbstractContextManager[object]] = nullcontext


def make(*words: str) -> tuple[str, ...]:
    """Return the command for a target of make."""
    return ("make", *words)


STEPS = {
    "lint": Step("format, types, rules, all of clang-tidy", (make("lint", "TIDY_SECONDS=7200"),)),
    "files": Step(
        "each file compiled alone", (("cmake", "--preset", "files"), ("cmake", "--build", "build/files"))
    ),
    "cuda": Step("all that is CUDA compiles", (make("cuda"),)),
    "cpp": Step("C++ tests", (make("test-cpp", "TESTS="),)),
    # CI draws a third of the slow ones (tests/python/support/short_runs.py).
    "python": Step(
        "Python tests, the long ones too, with all cores kept busy",
        (make("test-python", "TESTS="),),
        busy_cores,
    ),
    "torch": Step("PyTorch's own tests of backends", ((PYTHON, "-m", "tests.torch_suite"),)),
    "tsan": Step("ThreadSanitizer", (make("tsan"),)),
    "asan": Step("AddressSanitizer", (make("asan"),)),
    "ubsan": Step("UndefinedBehaviorSanitizer", (make("ubsan"),)),
    "coverage": Step("lines that tests reach", (make("coverage"),)),
    "wheel": Step("the wheel by itself", (make("wheel-check"),)),
    "mpi": Step(
        "the MPIs of apt and of the wheel: modules built with each, and two ranks",
        tuple(("tools/check_mpi.sh", name) for name in ("openmpi", "mpich", "wheel")),
    ),
    "versions": Step("other Pythons and PyTorchs", ((PYTHON, "tools/try_versions.py"),)),
}


def run(name: str) -> bool:
    """Run the commands of a step; return whether all ended with 0."""
    step = STEPS[name]
    with (LOGS / f"{name}.log").open("w") as log, step.beside():
        for command in step.commands:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            if subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False).returncode:
                return False
    return True


def commit() -> str:
    """Return the commit that is checked."""
    words = ("git", "describe", "--always", "--dirty")
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def main(words: Sequence[str] | None = None) -> int:
    """Run the steps and print how each ended; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"all of: {', '.join(STEPS)}")
    chosen = parser.parse_args(words).steps or list(STEPS)
    if unknown := [name for name in chosen if name not in STEPS]:
        parser.error(f"no step {unknown[0]!r}; there are {', '.join(STEPS)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    table = Table(title=f"nightly of {commit()}")
    for column in ("step", "what", "outcome", "minutes"):
        table.add_column(column)
    failed = False
    for name in chosen:
        begin = time.monotonic()
        passed = run(name)
        minutes = f"{(time.monotonic() - begin) / 60:.1f}"
        outcome = "passed" if passed else f"FAILED: out/nightly/{name}.log"
        failed = failed or not passed
        print(f"{name}: {outcome} ({minutes} min)", flush=True)
        table.add_row(name, STEPS[name].what, outcome, minutes)
    with (LOGS / "summary.txt").open("w") as file:
        Console(file=file, width=100).print(table)
    print((LOGS / "summary.txt").read_text())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
