"""The gate on several ranks: all take the plan that was the fastest, and no gradient is lost on the way."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
import torch

import roundelay.torch as hvd
from ranks import run_checks
from roundelay.buckets import Cuts
from roundelay.torch.gradients import pool_tuner
from roundelay.torch.optimizer import wrapper_of
from small_gradients import add_gradients, make_parameters, use_pool

BUCKETS = 4
LOG = "ROUNDELAY_AUTOTUNE_LOG"
TUNING = "ROUNDELAY_AUTOTUNE" in os.environ
ALGORITHMS = os.environ.get("ROUNDELAY_FABRIC") == "mpi"  # the one check where they are different ways


@pytest.mark.parametrize("np", [2, 4])
def test_auto(np: int) -> None:
    run_checks(__file__, np, env={"ROUNDELAY_THETA": "64"})


def test_algorithms_between_nodes() -> None:
    run_checks(__file__, 3, env={"ROUNDELAY_THETA": "64", "ROUNDELAY_FABRIC": "mpi"})


def test_one_search_of_sizes_and_plans(tmp_path: Path) -> None:
    log = tmp_path / "search.jsonl"
    run_checks(__file__, 2, env={"ROUNDELAY_AUTOTUNE": "1", LOG: str(log)})


@contextmanager
def _clock(duration: Callable[[], float]) -> Iterator[None]:
    """Makes steps take so many seconds, for the search."""
    now = 0.0

    def read() -> float:
        nonlocal now
        now += duration()
        return now

    with mock.patch.object(pool_tuner, "time", mock.Mock(perf_counter=read)):
        yield


def _train(auto: hvd.strategies.Auto, slow: int, steps: int = 120) -> torch.optim.Optimizer:
    """Takes steps, which take longer while a bucket has the candidate number ``slow``."""
    parameters = make_parameters(BUCKETS, 16)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=auto)
    use_pool(optimizer)
    with _clock(lambda: 2.0 if slow in auto.plan else 1.0):
        for _ in range(steps):
            _step(parameters, optimizer)
    return optimizer


def _step(parameters: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    add_gradients(*((parameter, hvd.rank() + 1.0) for parameter in parameters))
    optimizer.step()


def _plans(auto: hvd.strategies.Auto) -> list[list[int]]:
    own = torch.tensor(auto.plan, dtype=torch.int32)
    return hvd.allgather(own.unsqueeze(0)).tolist()


def check_all_ranks_take_the_fastest() -> None:
    if TUNING or ALGORITHMS:
        return
    auto = hvd.strategies.Auto(("dense", "bf16"), trial_steps=3)
    optimizer = _train(auto, slow=0)
    assert _plans(auto) == [[1] * BUCKETS] * hvd.size()
    assert hvd.strategies.of(optimizer) is auto
    if hvd.rank() == 0:
        assert auto.choice.startswith("bf16 (dense ")
        assert " ms a step)" in auto.choice
    assert "half:wire=bf16" in hvd.report()


def check_algorithms_are_candidates() -> None:
    if TUNING:
        return
    auto = hvd.strategies.Auto(("dense", "ring", "halving_doubling"), trial_steps=3)
    optimizer = torch.optim.SGD(make_parameters(BUCKETS, 16), lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=auto)
    parameters = optimizer.param_groups[0]["params"]
    use_pool(optimizer)
    with _clock(lambda: 1.0 if 2 in auto.plan else 2.0):
        for _ in range(60):
            _step(parameters, optimizer)
    if not ALGORITHMS:  # shared memory has one way
        assert _plans(auto) == [[0] * BUCKETS] * hvd.size()
        if hvd.rank() == 0:
            assert auto.choice == "dense: the candidates are no other way here"
        return
    assert _plans(auto) == [[2] * BUCKETS] * hvd.size()
    assert {float(-p.detach()[0]) for p in parameters} == {60 * hvd.size() * (hvd.size() + 1) / 2}
    if hvd.rank() == 0:
        assert auto.choice.startswith("halving_doubling (dense ")
    for name in ("ring", "halving_doubling"):
        assert f"allreduce:algorithm={name}" in hvd.report()


def check_dense_is_kept_where_nothing_pays() -> None:
    if TUNING or ALGORITHMS:
        return
    for candidate in ("bf16", "fp16"):
        auto = hvd.strategies.Auto((candidate,), trial_steps=3)
        optimizer = _train(auto, slow=1)
        assert _plans(auto) == [[0] * BUCKETS] * hvd.size()
        if hvd.rank() == 0:
            assert auto.choice.startswith("dense: nothing pays here (dense ")
        assert f"half:wire={candidate}" in hvd.report()
        del optimizer


def check_what_a_lossy_candidate_keeps_is_sent_when_it_is_left() -> None:
    if TUNING or ALGORITHMS:
        return
    csc = hvd.strategies.CSC(0.5, 4, momentum=None, dense_below=0)
    auto = hvd.strategies.Auto(("dense", csc), trial_steps=3)
    steps = 150
    parameters = make_parameters(BUCKETS, 16)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=auto)
    use_pool(optimizer)
    begin = [parameter.detach().clone() for parameter in parameters]
    with _clock(lambda: 2.0 if 1 in auto.plan else 1.0):
        for _ in range(steps):
            _step(parameters, optimizer)
    assert _plans(auto) == [[0] * BUCKETS] * hvd.size()
    assert "csc:" in hvd.report()
    size = hvd.size()
    moved = sum(float((b - p).detach().sum()) for p, b in zip(parameters, begin, strict=True))
    assert moved == steps * BUCKETS * 16 * size * (size + 1) / 2


def check_a_state_has_the_plan() -> None:
    if TUNING or ALGORITHMS:
        return
    auto = hvd.strategies.Auto(("dense", "bf16"), trial_steps=3)
    trained = _train(auto, slow=0)
    state = auto.state_dict()
    assert state["plan"] == [1] * BUCKETS
    other = hvd.strategies.Auto(("dense", "bf16"), trial_steps=3)
    del trained
    optimizer = torch.optim.SGD(make_parameters(BUCKETS, 16), lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=other)
    other.load_state_dict(state)
    assert other.plan == (1,) * BUCKETS
    with pytest.raises(ValueError, match="no state of strategy"):
        other.load_state_dict({**state, "plan": [7]})
    assert wrapper_of(optimizer) is not None


def _cuts(optimizer: torch.optim.Optimizer) -> Cuts:
    wrapper = wrapper_of(optimizer)
    assert wrapper is not None
    assert wrapper._sync is not None
    cuts = wrapper._sync.cuts()
    assert cuts is not None
    return cuts


def _search(auto: hvd.strategies.Auto, best: tuple[int, int]) -> None:
    """Trains until the search is over; ``best`` is the candidate and the theta of the fastest steps.

    Every step's sums are exact, whatever is tried, and all ranks have one setting after each.
    """
    size, number = 1 << 14, 24  # 1.5 MiB: sizes matter, and operations are measured
    parameters = make_parameters(number, size)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=auto)
    use_pool(optimizer)
    log = Path(os.environ[LOG])
    lines = len(log.read_text().splitlines()) if log.exists() else 0
    candidate, theta = best
    seen = set()

    def duration() -> float:
        return 1.0 + (candidate not in auto.plan) + 0.5 * (_cuts(optimizer).theta != theta)

    with _clock(duration):
        for step in range(400):
            _step(parameters, optimizer)
            settings = hvd.allgather_object((_cuts(optimizer), auto.plan))
            assert settings == settings[:1] * hvd.size(), step
            seen.add(settings[0])
            if hvd.broadcast_object(log.exists() and len(log.read_text().splitlines()) > lines):
                break
        else:
            raise AssertionError("the search does not end")
        for _ in range(12):  # a technique with state is flushed before the last change
            _step(parameters, optimizer)
    moved = {value for parameter in parameters for value in (-parameter.detach()).tolist()}
    assert moved == {(step + 13) * hvd.size() * (hvd.size() + 1) / 2}
    found = [json.loads(line) for line in log.read_text().splitlines()[lines:]]
    kept = [line for line in found if line["kept"]]
    tried = {(line["theta"], line["strategy"]) for line in found}
    assert len(kept) == 1
    assert kept[0]["step_ms"] == min(line["step_ms"] for line in found)
    assert kept[0]["theta"] == _cuts(optimizer).theta
    assert kept[0]["strategy"] == auto.named(auto.plan)
    assert len({theta for theta, _ in tried}) >= 2
    assert len({strategy for _, strategy in tried}) >= 2
    assert len({(cuts.theta, auto.named(plan)) for cuts, plan in seen}) >= len(tried)
    if hvd.rank() == 0:
        assert auto.choice.startswith(f"{kept[0]['strategy']} with theta ")


def check_sizes_and_plans_are_searched_at_once() -> None:
    if not TUNING:
        return
    for theta in (1 << 18, 1 << 20):
        _search(hvd.strategies.Auto(("dense", "bf16"), trial_steps=2), (1, theta))


def check_lossy_candidates_are_flushed_before_sizes_change() -> None:
    if not TUNING:
        return
    csc = hvd.strategies.CSC(0.5, 64, momentum=None, dense_below=0)
    _search(hvd.strategies.Auto(("dense", csc), trial_steps=2), (0, 1 << 18))
