"""A timeline of a training has what `roundelay plan` needs: each gradient's size, order and time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import run_checks
from roundelay.plan import recorded
from roundelay.timeline import events

STEPS = 12
SLEEP_S = 0.02  # between two gradients: the order of magnitude is what is checked


@pytest.mark.slow
def test_recorded_steps(tmp_path: Path) -> None:
    where = {"ROUNDELAY_TIMELINE": "DYNAMIC", "TRACE": str(tmp_path / "trace.json")}
    run_checks(__file__, 2, env=where, fresh=True)


class Slow(torch.autograd.Function):
    """Passes its input on; its backward takes a while."""

    @staticmethod
    def forward(context: Any, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
        time.sleep(SLEEP_S)
        return gradients[0]


def check_gradients_are_in_the_timeline() -> None:
    path = os.environ["TRACE"]
    first, last = torch.nn.Linear(6, 5), torch.nn.Linear(5, 3, bias=False)
    parameters = [("first.weight", first.weight), ("first.bias", first.bias), ("last.weight", last.weight)]
    optimizer = torch.optim.SGD([parameter for _, parameter in parameters], lr=0.01)
    hvd.DistributedOptimizer(optimizer, parameters)
    hvd.start_timeline(path)
    for _ in range(STEPS):
        optimizer.zero_grad()
        last(Slow.apply(first(torch.ones(2, 6)))).sum().backward()
        optimizer.step()
    hvd.stop_timeline()
    optimizer.zero_grad()
    last(first(torch.ones(2, 6))).sum().backward()  # nothing is recorded any more
    optimizer.step()
    if hvd.rank() > 0:
        return
    trace = events.read(path)
    marks = [e for e in trace.events if e.phase == "i" and e.name == "gradient"]
    sizes = {e.args["tensor"]: (e.args["elements"], e.args["bytes"], e.args["rows"]) for e in marks}
    assert sizes == {
        "gradient.first.weight": (30, 120, 5),
        "gradient.first.bias": (5, 20, 5),
        "gradient.last.weight": (15, 60, 3),
    }
    # The first step's end finds the timeline on; every later step has all gradients, on both ranks.
    assert STEPS - 2 <= len(marks) / 3 / 2 <= STEPS
    step = recorded.from_trace(trace).workload
    assert step.gradients[0].name == "gradient.last.weight"
    assert {g.name for g in step.gradients[1:]} == {"gradient.first.weight", "gradient.first.bias"}
    assert step.gradients[0].ready == 0.0
    assert all(gradient.ready >= SLEEP_S for gradient in step.gradients[1:])
    assert step.backward >= step.gradients[-1].ready
    assert (step.element, step.bytes) == (4, 200)
