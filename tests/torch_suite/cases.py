"""Runs PyTorch's tests for one backend and one world size: `python -m tests.torch_suite.cases --help`.

PyTorch starts new processes for the ranks of each test, which import torch for seconds. Here they are forked
from this process, which has imported all and uses none of it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import tempfile
import time
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tests.torch_suite import listing, without_gpus
from tests.torch_suite.results import Outcome, Results

LIMIT_S = 60
_MOST_TEXT = 1500  # of a failed test's output


def case_class(backend: str, world_size: int, part: listing.Part) -> type[unittest.TestCase]:
    """Return PyTorch's tests as one class, as its test_distributed_spawn.py makes it."""
    tests: Any = listing.load(backend, world_size, part)
    import torch

    base: Any = tests.TestDistBackend

    class TestBackend(base, tests.DistributedTest._DistTestBase):  # type: ignore[misc, name-defined]
        def setUp(self) -> None:
            super().setUp()
            tests.INIT_METHOD = os.environ["INIT_METHOD"]
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, *args: Any, **more: Any) -> None:
            tests.BACKEND = listing.GLOO  # NCCL's ranks look for GPUs first
            super()._run(*args, **more)

        def run_test(self, test_name: str, parent_pipe: Any) -> None:
            tests.BACKEND = backend if test_name in listing.ASK_THE_NAME else part.listed_as
            if part.gpus:
                without_gpus.enter()
            super().run_test(test_name, parent_pipe)

        def tearDown(self) -> None:
            processes = self.processes
            super().tearDown()
            for process in processes:
                process.kill()  # one that hangs in C++ may not end otherwise
                process.join()

    return TestBackend


class _Outcomes(unittest.TestResult):
    """Keeps the outcome of the one test that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome = "passed"
        self.why = ""

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self.outcome, self.why = "skipped", reason

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self.outcome, self.why = "failed", self._exc_info_to_string(err, test)  # type: ignore[attr-defined]

    addError = addFailure  # noqa: N815


@contextlib.contextmanager
def _output_to(file: IO[bytes]) -> Iterator[None]:
    """Send what this process and its children write to a file meanwhile."""
    kept = [os.dup(number) for number in (1, 2)]
    for number in (1, 2):
        os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        for number, one in zip((1, 2), kept, strict=True):
            os.dup2(one, number)
            os.close(one)


def run_one(test: unittest.TestCase, part: str) -> Outcome:
    """Run one test of a part."""
    seen = _Outcomes()
    begin = time.monotonic()
    with tempfile.TemporaryFile() as file:
        with _output_to(file):
            test.run(seen)
        seconds = time.monotonic() - begin
        if seen.outcome != "failed":
            return Outcome(seen.outcome, part, round(seconds, 1), seen.why)
        file.seek(0)
        text = file.read().decode(errors="replace")
    return Outcome("failed", part, round(seconds, 1), f"{text[-_MOST_TEXT:]}\n{seen.why[-_MOST_TEXT:]}")


def chosen(names: Sequence[str], patterns: Sequence[str], share: str) -> list[str]:
    """Return the names in which a pattern is found; of these every n-th for "i/n"."""
    number, _, count = share.partition("/")
    some = [name for name in names if not patterns or any(re.search(pattern, name) for pattern in patterns)]
    return some[int(number) - 1 :: int(count)]


def main(words: Sequence[str] | None = None) -> None:
    """Run the chosen tests, and put their outcomes into a file."""
    parser = argparse.ArgumentParser(prog="python -m tests.torch_suite.cases", description=__doc__)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--part", choices=listing.PARTS, default="gloo")
    parser.add_argument("-k", dest="patterns", action="append", default=[])
    parser.add_argument("--share", default="1/1")
    parser.add_argument("--limit", type=int, default=LIMIT_S)
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args(words)
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(asked.limit)
    tests = case_class(asked.backend, asked.world_size, listing.PARTS[asked.part])
    from torch.testing._internal import common_distributed

    common_distributed.TIMEOUT_OVERRIDE.clear()  # one limit for all
    results = Results(asked.output)
    names = chosen(unittest.TestLoader().getTestCaseNames(tests), asked.patterns, asked.share)
    for name in results.left_for(asked.part, names):
        outcome = run_one(tests(name), asked.part)
        results.put(name, outcome)
        if outcome.kind != "skipped":
            print(
                f"{asked.backend} {asked.world_size} {name}: {outcome.kind}, {outcome.seconds} s", flush=True
            )


if __name__ == "__main__":
    main()
