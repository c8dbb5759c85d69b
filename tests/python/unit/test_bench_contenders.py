"""The list of contenders: libraries take their settings, and copies of a model train alike."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from benchmarks.contenders import AVERAGING, GRADIENTFLOW, STEPS, Training
from benchmarks.models import mlp
from benchmarks.workers.training import Trainee
from roundelay.torch._internal.strategy.text import parse

EVERY = {
    f"{kind} {key}": one
    for kind, own in (("steps", STEPS), ("averaging", AVERAGING), ("gradientflow", GRADIENTFLOW))
    for key, one in own.items()
}


@pytest.mark.parametrize("contender", EVERY.values(), ids=EVERY)
def test_the_library_takes_the_setting(contender: Training) -> None:
    """A run on nodes would tell only after half an hour."""
    if contender.library == "roundelay":
        assert parse(contender.setting).text
    elif contender.library == "ddp":
        assert not contender.setting or callable(getattr(default_hooks, contender.setting))
    elif contender.library == "powersgd":
        assert int(contender.setting) > 0
    else:
        assert (contender.library in ("none", "gloo"), contender.setting) == (True, "")


@pytest.mark.parametrize("own", [STEPS, AVERAGING, GRADIENTFLOW])
def test_tables_tell_contenders_apart(own: dict[str, Training]) -> None:
    assert len({one.name for one in own.values()}) == len(own)


def test_trainees_with_one_seed_get_the_same_batches_and_train_copies() -> None:
    task = mlp()
    before = [parameter.detach().clone() for parameter in task.model.parameters()]
    one, other = (Trainee(task, STEPS["none"], 0.1, 0.0, seed=3) for _ in range(2))
    for trainee in (one, other):
        trainee.step(trainee.batch())
    assert one.strategy is None
    for start, kept, mine, theirs in zip(
        before, task.model.parameters(), one.model.parameters(), other.model.parameters(), strict=True
    ):
        assert torch.equal(start, kept)
        assert torch.equal(mine, theirs)
    *_, last = one.model.parameters()
    assert not torch.equal(before[-1], last)
