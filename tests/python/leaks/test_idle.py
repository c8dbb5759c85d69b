"""What four ranks cost that have a process set and nothing to do; IDLE_S is for how many seconds."""

from __future__ import annotations

import os
import resource
import time

import pytest
import torch

import roundelay.torch as hvd
from ranks import mpirun, run_checks

pytestmark = [pytest.mark.slow, pytest.mark.skipif(mpirun() is None, reason="no mpirun")]

IDLE_S = float(os.environ.get("IDLE_S", "10"))


@pytest.mark.timeout(IDLE_S + 60)
def test_idle_ranks_cost_nothing() -> None:
    run_checks(__file__, 4, limit_s=IDLE_S + 50, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}, fresh=True)


def check_an_idle_rank_costs_nothing() -> None:
    """Less than 0.1 % of a core, no message, and no more than a few wake-ups."""
    halves = hvd.add_process_set([0, 1])
    hvd.allreduce(torch.ones(1))
    hvd.barrier()
    time.sleep(0.2)  # what ranks tell each other after the last operation
    messages = hvd.stats()["messages_sent"]
    use = resource.getrusage(resource.RUSAGE_SELF)
    time.sleep(IDLE_S)
    now = resource.getrusage(resource.RUSAGE_SELF)
    spent = (now.ru_utime + now.ru_stime) - (use.ru_utime + use.ru_stime)
    assert hvd.stats()["messages_sent"] == messages
    assert spent < 0.001 * IDLE_S, f"{spent} s of {IDLE_S} s"
    assert now.ru_nvcsw - use.ru_nvcsw <= 5
    hvd.barrier()
    assert hvd.remove_process_set(halves)
