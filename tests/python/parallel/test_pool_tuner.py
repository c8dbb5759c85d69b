"""Pools whose buckets and order change while they are in use: by measurement, by trial, after a drift."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from random_values import normal
from ranks import Check, run_check
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from roundelay.torch._internal.optimizer.gradient_sync import GradientSync
from roundelay.torch._internal.tuning import calibration
from roundelay.torch._internal.tuning.pool_tuner import PATIENCE
from roundelay.tuning.buckets import DEFAULT, Cuts
from small_gradients import add_gradients, gradient_of, make_parameters, sum_of_ranks, use_pool, wrapped_sgd

SIZE = 1 << 14  # elements: 24 parameters are 1.5 MiB
MEASURED = ("sizes_follow_from_a_measurement", "a_new_job_measures_anew", "the_same_bits_as_without_a_pool")
FIXED = ("any_cuts_and_orders_at_any_time", "a_drift_gives_a_new_order", "the_same_bits_as_without_a_pool")


@pytest.mark.parametrize("np", [1, 2])
@pytest.mark.checks_of(only=MEASURED)
def test_sizes_by_measurement(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.checks_of(only=("ranks_that_wait_for_two_optimizers_do_not_meet",))
def test_two_optimizers(check: Check) -> None:
    run_check(check, 2)


@pytest.mark.slow
@pytest.mark.checks_of(only=FIXED)
def test_cuts_and_orders_may_change_at_any_time(check: Check) -> None:
    run_check(check, 3, env={"ROUNDELAY_THETA": "64"})


@pytest.mark.checks_of(only=("trials_end_with_the_fastest",))
def test_trials_of_sizes(check: Check, tmp_path: Path) -> None:
    log = tmp_path / "tuning.jsonl"
    env = {
        "HOROVOD_AUTOTUNE": "1",
        "ROUNDELAY_AUTOTUNE_LOG": str(log),
        "ROUNDELAY_AUTOTUNE_STEPS_PER_SAMPLE": "4",
        "ROUNDELAY_FABRIC": "mpi",
    }
    run_check(check, 2, env=env)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len({line["theta"] for line in lines}) >= 2
    assert [line["kept"] for line in lines].count(True) == 1
    assert all(line["optimizer"].startswith("gradient") for line in lines)
    assert all(line["fastest_ms"] <= line["step_ms"] <= line["slowest_ms"] for line in lines)
    assert all(line["predicted_ms"] > 0 for line in lines)


def _sync(optimizer: torch.optim.Optimizer) -> GradientSync:
    wrapper = wrapper_of(optimizer)
    assert wrapper is not None
    assert wrapper.gradient_hooks.sync is not None
    return wrapper.gradient_hooks.sync


def _cuts_of_all(optimizer: torch.optim.Optimizer) -> Cuts:
    """The same on all ranks."""
    cuts = _sync(optimizer).cuts()
    assert cuts is not None
    assert hvd.allgather_object(cuts) == [cuts] * hvd.size()
    return cuts


def _step(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], factor: float = 1.0) -> None:
    add_gradients(*((p, (hvd.rank() + 1.0) * factor) for p in parameters))
    optimizer.step()
    for parameter in parameters:
        assert gradient_of(parameter)[:: len(parameter) - 1] == [sum_of_ranks() * factor] * 2
    optimizer.zero_grad()


def check_sizes_follow_from_a_measurement() -> None:
    """Made once, when the first pool that is large enough is there; the others know its result."""
    calibration.forget()
    small = wrapped_sgd(make_parameters(2))
    use_pool(small)
    assert calibration.known(hvd.global_process_set) is None
    for number in range(2):
        parameters = make_parameters(24, SIZE)
        optimizer = wrapped_sgd(parameters)
        with mock.patch.object(calibration, "calibrate", wraps=calibration.calibrate) as measured:
            use_pool(optimizer)
        assert measured.call_count == (hvd.size() > 1 and number == 0)
        if hvd.size() > 1:
            _cuts_of_all(optimizer)
            link = calibration.known(hvd.global_process_set)
            assert link is not None
            assert link.alpha >= 0
            assert link.beta >= 0
            assert link.submit > 0
            assert 0 <= link.share <= 1
        for step in range(3):
            _step(optimizer, parameters, step + number)


def check_ranks_that_wait_for_two_optimizers_do_not_meet() -> None:
    """Nothing is measured while a rank has another comparison to wait for; its pool is used all the same."""
    calibration.forget()
    both = [make_parameters(24, SIZE) for _ in range(2)]
    optimizers = [wrapped_sgd(parameters) for parameters in both]
    for _ in range(4):
        add_gradients(*((parameter, hvd.rank() + 1.0) for parameters in both for parameter in parameters))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for optimizer in optimizers:
        assert _cuts_of_all(optimizer) == DEFAULT
    assert calibration.known(hvd.global_process_set) is None


def check_trials_end_with_the_fastest() -> None:
    parameters = make_parameters(24, SIZE)
    optimizer = wrapped_sgd(parameters)
    use_pool(optimizer)
    log = Path(os.environ["ROUNDELAY_AUTOTUNE_LOG"])
    for step in range(150):  # 10 trials of 2 steps, each with 3 or 4 that do not count
        _step(optimizer, parameters, step % 7)
        if hvd.broadcast_object(log.exists()):
            break
    else:
        raise AssertionError("the trials do not end")
    for _ in range(2):
        _step(optimizer, parameters)
    kept = [line for line in map(json.loads, log.read_text().splitlines()) if line["kept"]]
    assert [Cuts(line["theta"], line["last"]) for line in kept] == [_cuts_of_all(optimizer)]
    counted = hvd.stats()["pool_cuts"]
    for _ in range(10):
        _step(optimizer, parameters)
    assert hvd.stats()["pool_cuts"] == counted > 0


def _want_something(optimizer: torch.optim.Optimizer, step: int, shuffled: random.Random) -> None:
    """Rank 0 proposes other sizes, another order, both or nothing."""
    sync = _sync(optimizer)
    plan = sync._plan
    assert (plan._pool_tuner is not None) is (hvd.rank() == 0)
    if plan._pool_tuner is None or plan._layout.pools is None:
        return
    if step % 3 != 2:
        plan._pool_tuner.cuts = Cuts(shuffled.choice([0, 64, 128, 10**6]), shuffled.choice([0, 64, 10**6]))
    if step % 4 == 1:
        order = plan._layout.pools.gradients()
        shuffled.shuffle(order)
        plan._pool_tuner.order = tuple(order)
    sync.publish()


def check_any_cuts_and_orders_at_any_time() -> None:
    """Sums are right with whatever rank 0 wants next, whatever holds the gradients meanwhile."""
    parameters = make_parameters(9, 5)
    optimizer = wrapped_sgd(parameters, backward_passes_per_step=2)
    use_pool(optimizer, 2)
    before = hvd.stats()
    shuffled = random.Random(7)
    held: list[torch.Tensor | None] = []
    held_value = 0.0
    for step in range(40):
        _want_something(optimizer, step, shuffled)
        for factor in (1.0, 2.0)[: 1 + step % 2]:  # a whole window, and one that ends early
            add_gradients(*((parameter, (hvd.rank() + 1.0) * factor) for parameter in parameters))
        optimizer.step()
        want = sum_of_ranks() * (1.0 + 2.0 * (step % 2))
        assert [gradient_of(parameter) for parameter in parameters] == [[want] * 5] * 9
        assert all(old is not None and old.tolist() == [held_value] * 5 for old in held)
        if step % 3 == 0:  # nobody's gradients any more: they keep their values
            held, held_value = [parameter.grad for parameter in parameters], want
        optimizer.zero_grad(set_to_none=step % 3 == 0)
    work = hvd.stats()
    assert work["pool_cuts"] - before["pool_cuts"] >= 15
    assert work["pool_orders"] - before["pool_orders"] >= 5


def _train(pool: bool) -> list[torch.Tensor]:
    """Ten steps from equal weights, with inputs of each rank; rank 0 wants something else all the time."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(300, 400), nn.Tanh(), nn.Linear(400, 700), nn.Tanh(), nn.Linear(700, 5))
    parameters = list(model.parameters())
    groups = None if pool else [[parameter] for parameter in parameters]  # a group for each: never in a pool
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), groups=groups)
    generator = torch.Generator().manual_seed(hvd.rank())
    for step in range(10):
        if pool and hvd.size() > 1 and step > 2:
            _want_something(optimizer, step, random.Random(step))
        model(normal(generator, 4, 300)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 3 == 0)
    return [parameter.detach().clone() for parameter in parameters]


def check_the_same_bits_as_without_a_pool() -> None:
    assert all(map(torch.equal, _train(pool=True), _train(pool=False)))


def check_a_drift_gives_a_new_order() -> None:
    """Each gradient is a bucket of its own here. Then backward brings them the other way round."""
    parameters = make_parameters(6, 16)
    optimizer = wrapped_sgd(parameters)
    use_pool(optimizer)
    kept = hvd.stats()["pool_orders"]
    for step in range(PATIENCE):
        _step(optimizer, parameters, step)
    assert hvd.stats()["pool_orders"] == kept  # as in the first step
    parameters.reverse()
    for step in range(PATIENCE + 2):
        _step(optimizer, parameters, step)
        assert hvd.stats()["pool_orders"] == kept
    for step in range(4):
        _step(optimizer, parameters, step)
    assert hvd.stats()["pool_orders"] == kept + 1
    before = hvd.stats()
    for step in range(PATIENCE + 5):
        _step(optimizer, parameters, step)
    work = hvd.stats()
    assert work["pool_orders"] == kept + 1  # in place from now on
    assert work["tensors"] - before["tensors"] == (PATIENCE + 5) * 6


def check_a_new_job_measures_anew() -> None:
    use_pool(wrapped_sgd(make_parameters(24, SIZE)))
    assert (calibration.known(hvd.global_process_set) is not None) is (hvd.size() > 1)
    hvd.shutdown()
    hvd.init()
    assert calibration.known(hvd.global_process_set) is None
