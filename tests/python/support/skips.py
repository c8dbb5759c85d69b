"""Limits how many tests CI may skip, so that a missing tool does not make a run green.

conftest.py registers it. In CI a reason that is not in the table may skip no test: mpirun, mpi4py, a
compiler, root and network namespaces are all available.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

import pytest

# The beginning of each allowed reason, and the number of tests that it may skip.
ALLOWED = {
    "needs 14 GB of free memory": 1,  # matrix/test_huge.py: two tensors of 2 GB on each of two ranks
}


class SkipBudget:
    """Counts skipped tests by reason. If a reason skips more than allowed, the run fails and names it."""

    def __init__(self, allowed: Mapping[str, int]) -> None:
        self._allowed = allowed
        self._seen: Counter[str] = Counter()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Counts a whole skipped module as one test."""
        self._note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts a skipped test. A test that fails as expected does not count."""
        if not hasattr(report, "wasxfail"):
            self._note(report)

    def _note(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.skipped:
            assert isinstance(report.longrepr, tuple)
            self._seen[self._kind(report.longrepr[2].removeprefix("Skipped: "))] += 1

    def _kind(self, reason: str) -> str:
        return next((begin for begin in self._allowed if reason.startswith(begin)), reason)

    def excess(self) -> list[str]:
        """Returns a line for each reason that skipped too many tests."""
        return [
            f"{count} tests skipped, {self._allowed.get(reason, 0)} allowed "
            f"(tests/python/support/skips.py): {reason}"
            for reason, count in sorted(self._seen.items())
            if count > self._allowed.get(reason, 0)
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Makes an otherwise green run fail if it skipped too many tests."""
        if self.excess() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints the reasons."""
        for line in self.excess():
            terminalreporter.write_line(line, red=True)


def register(config: pytest.Config, allowed: Mapping[str, int] = ALLOWED) -> None:
    """Activates the limit in CI. A developer's machine may lack tools."""
    if os.environ.get("CI") == "true":
        config.pluginmanager.register(SkipBudget(allowed), "skip-budget")
