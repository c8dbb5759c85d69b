"""The timeline of a job on GPUs: what the device did is in it, behind what the host enqueued."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import gpu_device
import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay.timeline import analysis, events
from roundelay.timeline.intervals import total

ROUNDS = 100


@pytest.mark.slow
def test_timeline_on_gpu(check: Check, folder: Path) -> None:
    where = {"ROUNDELAY_TIMELINE": "DYNAMIC", "TRACE": str(folder / "trace.json")}
    run_check(check, 2, env={"RANKS_DEVICE": gpu_device.NAME, **where}, fresh=True)


def check_the_device_is_in_the_timeline() -> None:
    path = os.environ["TRACE"]
    hvd.start_timeline(path)
    for number in range(ROUNDS):
        assert (
            hvd.allreduce(torch.ones(1000), op=hvd.Sum, name=f"t{number}").sum().item() == 1000 * hvd.size()
        )
    hvd.stop_timeline()
    if hvd.rank() > 0:
        return
    trace = events.read(path)
    enqueued = {(e.args["order"], e.args["index"]): e for e in trace.spans(0, analysis.ENQUEUE)}
    done = trace.spans(0, analysis.GPU)
    assert len(enqueued) == ROUNDS
    assert ROUNDS / 2 < len(done) <= ROUNDS  # the host does not wait for the last ones
    for span in done:
        host = enqueued[span.args["order"], span.args["index"]]
        assert (span.name, span.args["names"]) == (host.name, host.args["names"])
        assert span.end > host.begin
    (step,) = analysis.steps(events.Trace([e for e in trace.events if e.rank == 0]))
    assert step.operations == ROUNDS
    moving = total(analysis.moving(trace, 0))
    assert 0 < moving <= sum(span.duration for span in done) + 1
    assert step.under_way >= moving - 1
