"""In CI no more tests are skipped than are known to be: a tool that is not there must not make a run green.

Registered by conftest.py. A reason that is not in the table skips nothing in CI: mpirun, mpi4py, a compiler,
root and network namespaces are all there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

import pytest

# What a reason begins with, and how many tests it may skip.
ALLOWED = {
    "needs 14 GB of free memory": 1,  # matrix/test_huge.py: two tensors of 2 GB on each of two ranks
}


class SkipBudget:
    """Counts skipped tests by reason; where there are more than allowed, the run fails and says which."""

    def __init__(self, allowed: Mapping[str, int]) -> None:
        self._allowed = allowed
        self._seen: Counter[str] = Counter()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A whole module counts as one."""
        self._note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that is expected to fail, and does, is no skipped one."""
        if not hasattr(report, "wasxfail"):
            self._note(report)

    def _note(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.skipped:
            assert isinstance(report.longrepr, tuple)
            self._seen[self._kind(report.longrepr[2].removeprefix("Skipped: "))] += 1

    def _kind(self, reason: str) -> str:
        return next((begin for begin in self._allowed if reason.startswith(begin)), reason)

    def excess(self) -> list[str]:
        """A line for each reason that skipped too many."""
        return [
            f"{count} tests skipped, {self._allowed.get(reason, 0)} allowed "
            f"(tests/python/support/skips.py): {reason}"
            for reason, count in sorted(self._seen.items())
            if count > self._allowed.get(reason, 0)
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A run that is green but for what it skipped fails."""
        if self.excess() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says why."""
        for line in self.excess():
            terminalreporter.write_line(line, red=True)


def register(config: pytest.Config, allowed: Mapping[str, int] = ALLOWED) -> None:
    """In CI only: a developer's machine may lack what it likes."""
    if os.environ.get("CI") == "true":
        config.pluginmanager.register(SkipBudget(allowed), "skip-budget")
