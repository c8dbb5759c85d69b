"""The gate on several ranks: all take the plan that was the fastest, and no gradient is lost on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
import torch

import roundelay.torch as hvd
from ranks import run_checks
from roundelay.torch.optimizer import wrapper_of
from small_gradients import add_gradients, make_parameters, use_pool

BUCKETS = 4


@pytest.mark.parametrize("np", [2, 4])
def test_auto(np: int) -> None:
    run_checks(__file__, np, env={"ROUNDELAY_THETA": "64"})


@contextmanager
def _clock(auto: hvd.strategies.Auto, slow: int) -> Iterator[None]:
    """Makes steps take 1 s, and 2 s while a bucket has the candidate number ``slow``."""
    now = 0.0

    def read() -> float:
        nonlocal now
        now += 2.0 if slow in auto._plan else 1.0
        return now

    with mock.patch.object(hvd.strategies.auto, "time", mock.Mock(perf_counter=read)):
        yield


def _train(auto: hvd.strategies.Auto, slow: int, steps: int = 120) -> torch.optim.Optimizer:
    """Takes steps, which take longer while a bucket has the candidate number ``slow``."""
    parameters = make_parameters(BUCKETS, 16)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=auto)
    use_pool(optimizer)
    with _clock(auto, slow):
        for _ in range(steps):
            _step(parameters, optimizer)
    return optimizer


def _step(parameters: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    add_gradients(*((parameter, hvd.rank() + 1.0) for parameter in parameters))
    optimizer.step()


def _plans(auto: hvd.strategies.Auto) -> list[list[int]]:
    own = torch.tensor(auto._plan, dtype=torch.int32)
    return hvd.allgather(own.unsqueeze(0)).tolist()


def check_all_ranks_take_the_fastest() -> None:
    auto = hvd.strategies.Auto(("dense", "bf16"), trial_steps=3)
    optimizer = _train(auto, slow=0)
    assert _plans(auto) == [[1] * BUCKETS] * hvd.size()
    assert hvd.strategies.of(optimizer) is auto
    if hvd.rank() == 0:
        assert auto.choice.startswith("bf16 (dense ")
        assert " ms a step)" in auto.choice
    assert "half:wire=bf16" in hvd.report()


def check_dense_is_kept_where_nothing_pays() -> None:
    for candidate in ("bf16", "fp16"):
        auto = hvd.strategies.Auto((candidate,), trial_steps=3)
        optimizer = _train(auto, slow=1)
        assert _plans(auto) == [[0] * BUCKETS] * hvd.size()
        if hvd.rank() == 0:
            assert auto.choice.startswith("dense: nothing pays here (dense ")
        assert f"half:wire={candidate}" in hvd.report()
        del optimizer


def check_what_a_lossy_candidate_keeps_is_sent_when_it_is_left() -> None:
    csc = hvd.strategies.CSC(0.5, 4, momentum=None, dense_below=0)
    auto = hvd.strategies.Auto(("dense", csc), trial_steps=3)
    steps = 150
    parameters = make_parameters(BUCKETS, 16)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=auto)
    use_pool(optimizer)
    begin = [parameter.detach().clone() for parameter in parameters]
    with _clock(auto, slow=1):
        for _ in range(steps):
            _step(parameters, optimizer)
    assert _plans(auto) == [[0] * BUCKETS] * hvd.size()
    assert "csc:" in hvd.report()
    size = hvd.size()
    moved = sum(float((b - p).detach().sum()) for p, b in zip(parameters, begin, strict=True))
    assert moved == steps * BUCKETS * 16 * size * (size + 1) / 2


def check_a_state_has_the_plan() -> None:
    auto = hvd.strategies.Auto(("dense", "bf16"), trial_steps=3)
    trained = _train(auto, slow=0)
    state = auto.state_dict()
    assert state["plan"] == [1] * BUCKETS
    other = hvd.strategies.Auto(("dense", "bf16"), trial_steps=3)
    del trained
    optimizer = torch.optim.SGD(make_parameters(BUCKETS, 16), lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=other)
    other.load_state_dict(state)
    assert other._plan == (1,) * BUCKETS
    with pytest.raises(ValueError, match="no state of strategy"):
        other.load_state_dict({**state, "plan": [7]})
    assert wrapper_of(optimizer) is not None
