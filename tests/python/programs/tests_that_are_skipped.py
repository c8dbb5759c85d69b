"""Tests of which as many as SKIPPED says are skipped: pytest runs a copy named test_tests.py."""

from __future__ import annotations

import os

import pytest


@pytest.mark.parametrize("number", range(int(os.environ["SKIPPED"])))
@pytest.mark.skipif(True, reason="needs 3 GPUs, there are 0")
def test_skipped(number: int) -> None:
    assert number


@pytest.mark.xfail(reason="known")
def test_known_to_fail() -> None:
    raise AssertionError


def test_passes() -> None:
    pass
