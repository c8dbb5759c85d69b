"""Runs PyTorch's tests of backends over roundelay and gloo, and compares: python -m tests.torch_suite.

Outcomes are in out/torch_suite, in a file for each backend and world size. Exit code 1: roundelay fails, or
does not run, a test that gloo passes, and exceptions.py does not say why.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.torch_suite import page
from tests.torch_suite.cases import LIMIT_S
from tests.torch_suite.listing import GLOO, PARTS
from tests.torch_suite.results import Results, counts, worse

ROOT = Path(__file__).resolve().parents[2]
OURS = "roundelay"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.torch_suite", description=__doc__)
    parser.add_argument("--backend", choices=[GLOO, OURS], nargs="+", default=[GLOO, OURS])
    parser.add_argument("--world-size", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--part", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument(
        "-k", dest="patterns", action="append", default=[], help="tests with this in the name"
    )
    parser.add_argument("--share", default="1/1", help="3/8: the third eighth of the tests")
    parser.add_argument("--limit", type=int, default=LIMIT_S, help="seconds that a test may take")
    parser.add_argument("--output", type=Path, default=ROOT / "out" / "torch_suite")
    docs = parser.add_mutually_exclusive_group()
    docs.add_argument("--docs", action="store_true", help="then write docs/results/torch_suite.md and .json")
    docs.add_argument("--render", action="store_true", help="run nothing: write these from --output")
    return parser


def _run(asked: argparse.Namespace, backend: str, world_size: int, part: str) -> None:
    """Run a part in a process of its own: PyTorch's module is imported once, for one of them."""
    command = [sys.executable, "-m", "tests.torch_suite.cases", f"--backend={backend}", f"--part={part}"]
    command += [f"--world-size={world_size}", f"--share={asked.share}", f"--limit={asked.limit}"]
    command += [f"--output={_file(asked.output, backend, world_size)}"]
    command += [word for pattern in asked.patterns for word in ("-k", pattern)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)


def _file(folder: Path, backend: str, world_size: int) -> Path:
    return folder.resolve() / f"{backend}-{world_size}.json"


def _compare(folder: Path, sizes: Sequence[int]) -> bool:
    """Print the counts of each world size; return whether roundelay does all that gloo does."""
    good = True
    for size in sizes:
        gloo, ours = (Results(_file(folder, backend, size)).read() for backend in (GLOO, OURS))
        for backend, outcomes in ((GLOO, gloo), (OURS, ours)):
            seen = counts(outcomes)
            print(f"{size} ranks, {backend}: {seen['passed']} passed, {seen['failed']} failed")
        left = worse(gloo, ours)
        good = good and not left
        for name in left:
            print(f"{size} ranks: gloo passes {name}, and roundelay does not:\n{ours[name].why}")
    return good


def main(words: Sequence[str] | None = None) -> int:
    """Run, compare, write; return the exit code."""
    asked = _parser().parse_args(words)
    for size in [] if asked.render else asked.world_size:
        for backend in asked.backend:
            for part in asked.part:
                _run(asked, backend, size, part)
    if asked.docs or asked.render:
        files = {
            size: {backend: Results(_file(asked.output, backend, size)).read() for backend in (GLOO, OURS)}
            for size in asked.world_size
        }
        page.write(files, ROOT / "docs" / "results")
    return 0 if _compare(asked.output, asked.world_size) else 1


if __name__ == "__main__":
    sys.exit(main())
