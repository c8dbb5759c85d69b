"""Tests that pass, fail, are late, and fail in other ways: pytest runs a copy named test_some.py."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from in_time import TooLateError, expect_within, three_tries, wait_until

tries: list[int] = []


@pytest.fixture
def leaves() -> Iterator[None]:
    yield
    raise TooLateError("the end")


def test_passes() -> None:
    pass


def test_wrong() -> None:
    assert [1] == [2]


def test_says_so() -> None:
    raise ValueError("TooLateError: 3 s")


def test_promised() -> None:
    expect_within(0.5, 1e6)


def test_awaited() -> None:
    wait_until(lambda: False, 0.0, "nothing comes")


def test_a_program() -> None:
    subprocess.run(["sleep", "9"], timeout=0.01, check=False)


@pytest.mark.timeout(0.1)
def test_hangs() -> None:
    time.sleep(9)


@pytest.mark.usefixtures("leaves")
@pytest.mark.parametrize("place", ["a/b.c [1]"])
def test_leaves(place: str) -> None:
    assert place


@pytest.mark.usefixtures("leaves")
def test_wrong_and_leaves() -> None:
    assert [1] == [2]


@three_tries
def test_third_time() -> None:
    tries.append(0)
    expect_within(1.0, 1e6 if len(tries) < 3 else 0.0)


@three_tries
def test_wrong_the_second_time() -> None:
    tries.append(1)
    expect_within(1.0, 1e6 if tries.count(1) < 2 else 0.0)
    assert tries.count(1) == 3
