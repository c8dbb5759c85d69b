"""The technique of a bucket on a GPU: its state lies there, and all its work is enqueued."""

from __future__ import annotations

import pytest

import gpu_device
from parallel.test_bucket_techniques import (  # noqa: F401  on a GPU, too
    Pooled,
    check_a_bucket_in_flight_keeps_its_technique,
    check_a_rank_that_differs_is_an_error_on_all,
    check_a_technique_without_state,
    check_a_written_state_is_flushed_first,
    check_average,
    check_csc_says_what_it_sent,
    check_state_is_kept_until_a_flush,
    check_texts,
)
from ranks import Check, run_check
from technique_libraries import CYCLIC

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("np", "seed"), [(1, 1), (3, 2)])
def test_techniques_on_gpu(np: int, seed: int, check: Check) -> None:
    run_check(check, np, env={"RANKS_DEVICE": gpu_device.NAME, "FAKE_GPU_SEED": str(seed)}, fresh=True)


def check_state_lies_on_the_gpu() -> None:
    one = Pooled("place")
    one.bucket.set_technique(CYCLIC)
    state = one.state()
    assert state is not None
    assert state.device == one.parameters[0].device
    assert state.device.type != "cpu"
