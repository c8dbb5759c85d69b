"""Horovod's numbers, by family of operations, on 1 to 4 ranks: each file states the rule as plain PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranks import Check, run_check

FAMILIES = ["allreduce", "gathering", "reducescatter", "optimizer"]  # in one job, as a start costs seconds
FILES = [Path(__file__).with_name(f"{family}.py") for family in FAMILIES]


@pytest.mark.checks_of(*FILES)
@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_horovods_numbers(np: int, check: Check) -> None:
    run_check(check, np)
