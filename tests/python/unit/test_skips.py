"""A run in CI fails when it skips more than the table in skips.py allows."""

from __future__ import annotations

import os

import pytest

from ranks import PATHS, PROGRAMS

pytest_plugins = "pytester"

PLUGIN = """
import skips

def pytest_configure(config):
    skips.register(config, {"needs 3 GPUs": 2})
"""
TESTS = (PROGRAMS / "tests_that_are_skipped.py").read_text()


def run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, skipped: int, more: str = ""
) -> pytest.RunResult:
    monkeypatch.setenv("SKIPPED", str(skipped))
    pytester.makeconftest(PLUGIN)
    pytester.makepyfile(test_tests=TESTS)
    if more:
        pytester.makepyfile(test_more=more)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider")


@pytest.fixture(autouse=True)
def _in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, PATHS)))


def test_as_many_as_allowed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(pytester, monkeypatch, 2)
    assert result.ret == pytest.ExitCode.OK, result.stdout.str()


def test_one_skip_more_than_allowed_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(pytester, monkeypatch, 3)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["3 tests skipped, 2 allowed (tests/python/support/skips.py): needs 3 GPUs"])


@pytest.mark.starts_jobs
@pytest.mark.parametrize(
    "more",
    [
        "import pytest\ndef test_it():\n    pytest.skip('no mpirun')\n",
        "import pytest\npytest.importorskip('no_such_module', reason='no mpirun')\n",
        "import pytest\npytestmark = pytest.mark.skip(reason='no mpirun')\ndef test_it():\n    pass\n",
    ],
)
def test_a_reason_that_is_not_listed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    result = run(pytester, monkeypatch, 1, more)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["1 tests skipped, 0 allowed (tests/python/support/skips.py): no mpirun"])


def test_elsewhere_anything_may_be_skipped(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI")
    assert run(pytester, monkeypatch, 3).ret == pytest.ExitCode.OK
