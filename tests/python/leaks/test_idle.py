"""What four ranks cost that have a process set and nothing to do; IDLE_S is for how many seconds."""

from __future__ import annotations

import os

import pytest
import torch

import roundelay.torch as hvd
from idleness import TRIES, expect_idle
from ranks import Check, mpirun, run_check

pytestmark = [pytest.mark.slow, pytest.mark.skipif(mpirun() is None, reason="no mpirun")]

IDLE_S = float(os.environ.get("IDLE_S", "10"))


@pytest.mark.timeout(TRIES * IDLE_S + 60)
def test_idle_ranks_cost_nothing(check: Check) -> None:
    run_check(check, 4, limit_s=TRIES * IDLE_S + 50, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}, fresh=True)


def check_an_idle_rank_costs_nothing() -> None:
    halves = hvd.add_process_set([0, 1])
    hvd.allreduce(torch.ones(1))
    expect_idle(IDLE_S)
    assert hvd.remove_process_set(halves)
