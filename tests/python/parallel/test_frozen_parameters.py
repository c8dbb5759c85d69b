"""Parameters that are frozen in training: ranks that average, and masters, know what changes them."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from daso_training import Training, daso, nodes_of
from ranks import Check, run_check

warnings.filterwarnings("ignore", "strategy .*all ranks are on one node", RuntimeWarning)


@pytest.mark.parametrize("np", [2])
def test_frozen_parameters(np: int, check: Check) -> None:
    run_check(check, np)


def step(weight: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Takes a step by a gradient of this rank's number, and keeps gradients of zero."""
    optimizer.zero_grad(set_to_none=False)
    if weight.requires_grad:
        (weight * (hvd.rank() + 1.0)).sum().backward()
    optimizer.step()


def is_equal_everywhere(weight: torch.Tensor) -> bool:
    every = hvd.allgather(weight.detach()[None])
    return bool((every == every[0]).all())


def check_one_that_momentum_moves_on() -> None:
    for strategy in ("dense", "local_sgd:period=4,within_node=period", "adasum", daso(4, 1)):
        with nodes_of(1):
            weight = torch.nn.Parameter(torch.zeros(4))
            optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
            hvd.DistributedOptimizer(optimizer, [("weight", weight)], strategy=strategy)
            for number in range(8):
                weight.requires_grad_(number < 4)
                step(weight, optimizer)
            averages: Any = hvd.strategies.of(optimizer)
            if hasattr(averages, "average"):
                averages.average()
            assert is_equal_everywhere(weight), strategy


def check_daso_averages_one_that_was_frozen_within_an_epoch() -> None:
    for saved in (False, True):
        with nodes_of(1):
            training = Training(daso(4, 1)).run(3)
            frozen = next(iter(training.model.parameters()))
            frozen.requires_grad_(False)
            training.run(3)
            if saved:  # a checkpoint has it, too
                state = training.strategy.state_dict()
                training.strategy.load_state_dict(state)
            training.strategy.epoch_ended(1.0)
            assert training.equal_everywhere()


def check_a_state_of_other_nodes_is_refused() -> None:
    with nodes_of(1):
        training = Training(daso(4, 1)).run(3)
        state = training.strategy.state_dict()
        state["exchange"] = {**state["exchange"], "nodes": [[1], [0]]}
        with pytest.raises(ValueError, match="other nodes"):
            training.strategy.load_state_dict(state)


def check_masters_of_one_that_was_frozen_when_hooks_were_made() -> None:
    weight = torch.nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    hvd.DistributedOptimizer(optimizer, [("weight", weight)], master_weights=True)
    step(weight, optimizer)
    weight.requires_grad_(False)
    hvd.DistributedOptimizer(optimizer, [("weight", weight)], master_weights=True)
    weight.requires_grad_(True)
    for _ in range(4):
        step(weight, optimizer)
    assert weight.tolist() == [-5 * (1 + hvd.size()) / 2] * 4


def check_masters_of_a_layer_that_was_frozen_when_wrapped() -> None:
    """Unfrozen before the load, it gets what the checkpoint has; frozen, a warning says that it does not."""

    def made() -> tuple[torch.nn.Parameter, torch.optim.SGD]:
        torch.manual_seed(1)
        layers = [torch.nn.Parameter(torch.randn(4).bfloat16()) for _ in range(2)]
        layers[0].requires_grad_(False)
        optimizer = torch.optim.SGD(layers, lr=0.01, momentum=0.9)
        hvd.DistributedOptimizer(optimizer, master_weights=True)
        return layers[0], optimizer

    first, optimizer = made()
    first.requires_grad_(True)
    for _ in range(3):
        optimizer.zero_grad()
        (first.float().square().sum() * (hvd.rank() + 1)).backward()
        optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    resumed, again = made()
    resumed.requires_grad_(True)
    again.load_state_dict(saved)
    masters = again.state_dict()["master_weights"]
    assert masters.keys() == saved["master_weights"].keys()
    assert all(torch.equal(masters[number], one) for number, one in saved["master_weights"].items())
    _, frozen = made()
    with pytest.warns(RuntimeWarning, match="1 parameters that are frozen or no halves now, .* number 0"):
        frozen.load_state_dict(saved)


def check_adasum_after_a_step_that_raised_and_a_load() -> None:
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    hvd.DistributedOptimizer(optimizer, [("weight", weight)], op=hvd.Adasum)

    def fails() -> float:
        raise ZeroDivisionError("made to fail")

    with pytest.raises(ZeroDivisionError):
        optimizer.step(fails)
    with torch.no_grad():
        weight.fill_(10.0)  # from a checkpoint
    optimizer.zero_grad()
    weight.sum().backward()
    optimizer.step()
    assert weight.tolist() == [9.0] * 3


def check_an_outer_optimizers_state_after_an_average() -> None:
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    local = hvd.strategies.LocalSGD(3, outer=lambda tensors: torch.optim.SGD(tensors, lr=0.5, momentum=0.9))
    hvd.DistributedOptimizer(optimizer, [("weight", weight)], strategy=local)
    for number in range(6):
        if number == 4:
            local.average()
            local.load_state_dict(local.state_dict())
        step(weight, optimizer)
    local.average()
    assert is_equal_everywhere(weight)


def check_norms_are_no_longer_shared_when_weights_differ() -> None:
    for mode, shared in (("auto", False), (False, False)):
        weight = torch.nn.Parameter(torch.ones(8, 8))
        optimizer = hvd.optim.LARS([weight], 0.5, distributed_norms=mode)
        local = hvd.strategies.LocalSGD(8, post_local_after=2, within_node="period")
        hvd.DistributedOptimizer(optimizer, [("weight", weight)], strategy=local)
        for number in range(6):
            optimizer.zero_grad()
            (weight * torch.arange(64.0).view(8, 8) ** hvd.rank()).sum().backward()
            optimizer.step()
            if number > 2:
                assert optimizer.norms_report().shared is shared
