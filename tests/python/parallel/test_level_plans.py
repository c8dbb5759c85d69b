"""Eight ranks that take themselves for four nodes in two racks: a search changes the plan over levels."""

from __future__ import annotations

from functools import partial
from unittest import mock

import pytest
import torch

import roundelay.torch as hvd
from in_time import wait_until
from ranks import Check, output, run_check
from roundelay.torch._internal.tuning import pool_tuner
from small_gradients import add_gradients, make_parameters, use_pool

pytestmark = pytest.mark.slow

NODES = "ROUNDELAY_NODE_ID=n$((RANK / 2)) LOCAL_RANK=$((RANK % 2)) ROUNDELAY_TOPOLOGY=rack=2,node=2"
STEPS = 160  # with autotune all algorithms are tried, too
SUM = 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8


def _step(parameters: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    add_gradients(*((parameter, hvd.rank() + 1.0) for parameter in parameters))
    optimizer.step()


def _train(parameters: list[torch.nn.Parameter], strategy: str | hvd.strategies.Strategy) -> torch.optim.SGD:
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=strategy)
    use_pool(optimizer)
    return optimizer


def check_a_technique_names_its_plan() -> None:
    parameters = make_parameters(3, 400_001)  # a bucket has several chunks of a plan
    optimizer = _train(parameters, "allreduce:factors=2+4")
    for step in range(1, 4):
        _step(parameters, optimizer)
        for parameter in parameters:
            assert torch.equal(parameter.detach(), torch.full((400_001,), -float(SUM * step)))


def check_the_search_takes_the_fastest_plan() -> None:
    auto = hvd.strategies.Auto(("dense",), trial_steps=2)
    parameters = make_parameters(4, 16)
    optimizer = _train(parameters, auto)
    now = 0.0

    def read() -> float:
        nonlocal now
        now += 1.0 if 1 in auto.plan else 2.0
        return now

    with mock.patch.object(pool_tuner, "time", mock.Mock(perf_counter=read)):
        for _ in range(STEPS):
            _step(parameters, optimizer)
    assert set(auto.plan) == {1}, auto.choice
    assert hvd.allgather_object(auto.plan) == [auto.plan] * 8
    assert {float(-p.detach()[0]) for p in parameters} == {float(STEPS * SUM)}
    if hvd.rank() == 0:
        assert auto.choice.startswith("allreduce:factors=2+4 (dense ")
    assert "allreduce:factors=2+4" in hvd.report()
    small = hvd.add_process_set([0, 1, 2, 3])
    if small.included():
        other = hvd.strategies.Auto(("dense",))
        optimizer = torch.optim.SGD(make_parameters(1), lr=1.0)
        hvd.DistributedOptimizer(optimizer, op=hvd.Sum, strategy=other, process_set=small)
        assert len(other.choices.costs) == 1  # the plans are those of all ranks


@pytest.mark.parametrize(
    "variables",
    [
        "ROUNDELAY_FACTORS=2,2,2+2,4",
        pytest.param("ROUNDELAY_AUTOTUNE=1 ROUNDELAY_STRATEGY=auto", marks=pytest.mark.nightly),
    ],
)
def test_plans(variables: str, check: Check) -> None:
    run_check(check, 8, env={"ROUNDELAY_LOG_LEVEL": "info"}, each=f"{NODES} {variables}", mpi=False)
    for text in (
        "process set 0: allreduces go over 2 (shm) x 2 (tcp) x 2 (tcp), in chunks",
        "process set 0: allreduces of a search may go over 2 (shm) x 4 (tcp), in chunks",
    ):
        wait_until(partial(is_logged, text), 20.0, f"not logged: {text}", output)


def is_logged(text: str) -> bool:
    return text in output()
