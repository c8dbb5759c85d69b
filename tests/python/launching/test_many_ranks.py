"""More ranks than cores: four hosts, which are namespaces, whose ranks report through leaders over TCP."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import pytest

import starts
from programs import many_ranks
from rank_program import program
from tests.rig import Rig, why_not

_REASON = why_not()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}")]
HOSTS = 4
FAN_OUT = 2
THREADS = 3  # of a rank, beside its program's
CLOCK_SAMPLES = 8


@pytest.mark.parametrize("each", [4, pytest.param(8, marks=pytest.mark.nightly)])
def test_many_ranks_start_step_and_stop(each: int, tmp_path: Path) -> None:
    ranks = HOSTS * each
    words = [sys.executable, *program(many_ranks.steps).words(tmp_path)]
    with Rig(nodes=HOSTS, mbit=None) as rig:
        hosts = ",".join(f"{rig.host(node)}:{each}" for node in range(HOSTS))
        launcher = [*rig.on(0), *starts.ROUNDELAYRUN, "--gloo", "-np", str(ranks), "-H", hosts]
        path = os.pathsep.join([str(rig.commands), starts.environment()["PATH"]])
        settings = {"ROUNDELAY_FAN_OUT": str(FAN_OUT), "ROUNDELAY_SCHEDULE_LOCK": "0"}
        status, output = starts.run([*launcher, *words], PATH=path, **settings)
    assert status == 0, output
    used = [ast.literal_eval((tmp_path / f"used.{rank}").read_text()) for rank in range(ranks)]
    assert all(one["nodes"] == HOSTS for one in used)
    # The coordination thread, the lane's, the data plane's; and rank 0's store.
    assert all(one["threads"] <= THREADS + (rank == 0) for rank, one in enumerate(used))
    # Rank 0 sends orders, and its clock, to its own host and to the leaders of two other hosts.
    served = each - 1 + FAN_OUT
    assert 0 < used[0]["orders_given"] <= many_ranks.STEPS * many_ranks.TENSORS
    assert used[0]["messages_sent"] <= served * (used[0]["orders_given"] + CLOCK_SAMPLES)
