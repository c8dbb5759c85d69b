"""Limits of time. A missed one is an error of its own, because a busy machine stretches any time: `.ci/run`
tries such a test once more, alone. A test that judges a promise in seconds has three tries (`three_tries`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

# Each try has fixtures of its own. Any other failure is final.
three_tries = pytest.mark.flaky(reruns=2, only_rerun=["TooLateError"])


class TooLateError(AssertionError):
    """Something came too late, or not at all while the test waited for it."""


def crowd() -> float:
    """Returns the factor for time limits: the load average per core, at least 1.5.

    The average lags behind what begins now, and a machine may pause for a second.
    """
    return max(1.5, os.getloadavg()[0] / (os.cpu_count() or 1))


def expect_within(limit_s: float, seconds: float, detail: object = "") -> None:
    """Checks that something took no longer than promised, which is stretched by the crowd."""
    allowed_s = limit_s * crowd()
    if seconds >= allowed_s:
        raise TooLateError(f"{seconds:.1f} s of {allowed_s:.1f} s\n{detail}")


def wait_until(
    condition: Callable[[], bool], limit_s: float, complaint: str, detail: Callable[[], object] = str
) -> None:
    """Waits for a fact, not longer than a limit that only a forgotten one reaches."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= deadline:
            raise TooLateError(f"{complaint} {detail()}")
        time.sleep(0.02)
