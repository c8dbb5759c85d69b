"""A timeline of a training has what `roundelay plan` needs: each gradient's size, order and time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
import starts
from ranks import ROOT, Check, needs_ranks, run_check
from roundelay.plan import recorded
from roundelay.plan.workload import Gradient
from roundelay.timeline import analysis, events

STEPS = 12
WHOLE = 20  # steps that are enough for a plan
SLEEP_S = 0.02  # between two gradients: the order of magnitude is what is checked


@pytest.mark.slow
@pytest.mark.parametrize("np", [1, 2])
def test_recorded_steps(np: int, check: Check, folder: Path) -> None:
    where = {"ROUNDELAY_TIMELINE": "DYNAMIC", "TRACE": str(folder / "trace.json")}
    run_check(check, np, env=where, fresh=True)


@pytest.mark.slow
def test_one_rank_gives_the_gradients_of_two(tmp_path: Path) -> None:
    for status, output in starts.run_all([(_digits(np, tmp_path), {}) for np in (1, 2)]):
        assert status == 0, output
    one, two = (recorded.load(tmp_path / f"{np}.json", 1.0) for np in (1, 2))
    assert (one.ranks, two.ranks) == (1, 2)
    assert len(one.steps) >= WHOLE
    assert one.workload.element == two.workload.element == 4
    sizes, expected = (
        {gradient.name: (gradient.elements, gradient.shape) for gradient in each.workload.gradients}
        for each in (one, two)
    )
    assert sizes == expected
    # Of the layers, which are far apart; a layer's bias and weight may change places.
    order, expected_order = (_layers(each.workload.gradients) for each in (one, two))
    assert order == expected_order == ["10", "8", "5", "2", "0"]
    assert min(one.workload.forward, one.workload.backward, one.workload.update) > 0.0
    asked = ["plan", "--from", str(tmp_path / "1.json"), "--nodes", "1,2,4", "--inter", "1Gbit"]
    status, output = starts.run([sys.executable, "-m", "roundelay.cli", *asked, "--batch-size", "16"])
    assert status == 0, output
    assert "of 1 rank, medians" in " ".join(output.split())


def _digits(np: int, folder: Path) -> list[str]:
    train = [sys.executable, str(ROOT / "examples" / "digits.py"), "--epochs", "1", "--width", "16"]
    return [*starts.ROUNDELAYRUN, "-np", str(np), "--timeline-filename", str(folder / f"{np}.json"), *train]


def _layers(gradients: Sequence[Gradient]) -> list[str]:
    return list(dict.fromkeys(gradient.name.split(".")[1] for gradient in gradients))


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
    # The first step's end finds the timeline on; every later step has all gradients, on all ranks.
    assert STEPS - 2 <= len(marks) / 3 / hvd.size() <= STEPS
    step = recorded.from_trace(trace).workload
    assert step.gradients[0].name == "gradient.last.weight"
    assert {g.name for g in step.gradients[1:]} == {"gradient.first.weight", "gradient.first.bias"}
    assert step.gradients[0].ready == 0.0
    assert all(gradient.ready >= SLEEP_S for gradient in step.gradients[1:])
    assert step.backward >= step.gradients[-1].ready
    assert (step.element, step.bytes) == (4, 200)


def check_a_file_has_what_was_recorded_while_it_was_the_file() -> None:
    paths = [os.environ["TRACE"] + end for end in ("8", "9")]
    for number, path in enumerate(paths):
        hvd.start_timeline(path)  # the second one ends the first
        hvd.allreduce(torch.ones(1), name=f"operation.{number}")
        hvd.barrier()
    hvd.stop_timeline()
    if hvd.rank() > 0:
        return
    for number, path in enumerate(paths):
        text = Path(path).read_text()
        assert [f"operation.{other}" in text for other in range(2)] == [number == 0, number == 1]


def check_a_bucket_counts_as_its_gradients() -> None:
    path = os.environ["TRACE"] + "5"
    model = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hvd.DistributedOptimizer(optimizer)
    hvd.start_timeline(path)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
    hvd.stop_timeline()
    if hvd.rank() > 0 or hvd.size() == 1:
        return
    late = [step for step in analysis.steps(events.read(path)) if step.index >= STEPS // 2]
    assert {(step.tensors, step.operations) for step in late} == {(10, 1)}


def check_accumulated_gradients_are_marked_once_in_a_step() -> None:
    path = os.environ["TRACE"] + "2"
    layer = torch.nn.Linear(6, 5, bias=False)
    optimizer: Any = torch.optim.SGD(layer.parameters(), lr=0.01)
    hvd.DistributedOptimizer(optimizer, backward_passes_per_step=3)
    hvd.start_timeline(path)
    for step in range(STEPS):
        if step == STEPS // 2:
            optimizer.set_backward_passes_per_step(1)
        optimizer.zero_grad()
        for _ in range(2):
            with optimizer.no_sync():
                layer(torch.ones(2, 6)).sum().backward()
        layer(torch.ones(2, 6)).sum().backward()
        optimizer.step()
    hvd.stop_timeline()
    if hvd.rank() > 0:
        return
    marks = [e for e in events.read(path).events if e.phase == "i" and e.name == "gradient"]
    assert STEPS - 2 <= len(marks) / hvd.size() <= STEPS


@needs_ranks(1, 1)
def check_one_rank_has_hooks_only_while_a_timeline_is_recorded() -> None:
    layer = torch.nn.Linear(6, 5, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    hvd.DistributedOptimizer(optimizer)

    def hooks(optimizer: torch.optim.Optimizer) -> int:
        layer(torch.ones(2, 6)).sum().backward()
        optimizer.step()
        return len(layer.weight._post_accumulate_grad_hooks or ())

    assert hooks(optimizer) == 0
    hvd.start_timeline(os.environ["TRACE"] + "3")
    assert [hooks(optimizer), hooks(optimizer)] == [1, 1]
    hvd.DistributedOptimizer(optimizer)  # wrapped again
    assert hooks(optimizer) == 1
    hvd.stop_timeline()
    assert [hooks(optimizer), hooks(optimizer)] == [0, 0]
    hvd.start_timeline(os.environ["TRACE"] + "4")
    assert hooks(optimizer) == 1
    del optimizer
    assert not layer.weight._post_accumulate_grad_hooks
    hvd.stop_timeline()
