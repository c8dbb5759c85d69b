"""Common to all Python tests: one thread, as ranks share the cores; in CI a limit to what may be skipped."""

from __future__ import annotations

import os

import pytest

import skips

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Before the first test."""
    skips.register(config)
