"""Gradients on a GPU that travel in a half type."""

from __future__ import annotations

import pytest

import gpu_device
from parallel.test_half_wire import (  # noqa: F401  on a GPU, too
    check_each_gradient_is_cast_once,
    check_every_bit_is_horovods,
    check_kept_results_move_out_of_the_second_memory,
    check_what_changes_after_its_cast_is_cast_again,
)
from ranks import Check, run_check

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("np", "seed"), [(1, 1), (2, 2), (4, 3)])
def test_half_wire_on_gpu(np: int, seed: int, check: Check) -> None:
    env = {"RANKS_DEVICE": gpu_device.NAME, "FAKE_GPU_SEED": str(seed)}
    run_check(check, np, env=env, fresh=True)
