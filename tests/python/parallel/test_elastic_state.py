"""States of elastic training on several ranks: what a commit has, and what a change takes along."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, run_check

warnings.filterwarnings("ignore", "strategy local_sgd.*all ranks are on one node", RuntimeWarning)


@pytest.mark.parametrize("np", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_elastic_state(np: int, check: Check) -> None:
    run_check(check, np)


def _step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    (model(torch.ones(3, 2)) * (hvd.rank() + 1)).square().sum().backward()
    optimizer.step()


def check_a_restore_drops_gradients() -> None:
    """A loop may clear them after the step: those of a lost step would be added to the next one's."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD([*model.parameters(), torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    hvd.DistributedOptimizer(optimizer)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer)
    _step(model, optimizer)
    state.restore()
    assert all(one.grad is None for group in optimizer.param_groups for one in group["params"])
    _step(model, optimizer)


def _train_the_first_layer_too(model: torch.nn.Sequential, optimizer: torch.optim.Optimizer) -> Any:
    """Take two steps, the second one with another group. Return a copy of the weights."""
    for added in (False, True):
        if added:
            optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 0.01})
        optimizer.zero_grad()
        inputs = torch.ones(3, 2, dtype=next(model.parameters()).dtype)
        (model(inputs) * (hvd.rank() + 1)).square().sum().backward()
        optimizer.step()
    return copy.deepcopy(model.state_dict())


def check_a_restore_drops_groups_that_are_newer() -> None:
    """The training that goes on adds them again."""
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)).to(dtype)
        optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1, momentum=0.9)
        hvd.DistributedOptimizer(optimizer, master_weights=dtype is torch.bfloat16)
        state = hvd.elastic.TorchState(model=model, optimizer=optimizer)
        once = _train_the_first_layer_too(model, optimizer)
        state.restore()
        assert [len(group["params"]) for group in optimizer.param_groups] == [2]
        again = _train_the_first_layer_too(model, optimizer)
        torch.testing.assert_close(again, once, rtol=0.0, atol=0.0)


class _Counting(torch.nn.Linear):
    """Has a state that is no tensor."""

    calls = 0

    def get_extra_state(self) -> Any:
        return {"calls": self.calls}

    def set_extra_state(self, state: Any) -> None:
        self.calls = state["calls"]


def check_extra_state_is_the_roots() -> None:
    layer = _Counting(2, 2)
    layer.calls = 3 + hvd.rank()
    state = hvd.elastic.TorchState(model=torch.nn.Sequential(layer))
    state.sync()
    assert layer.calls == 3
    assert torch.equal(hvd.allreduce(layer.weight.detach(), op=hvd.Max), layer.weight)


def check_what_a_rank_has_seen_stays_when_it_leaves() -> None:
    sampler = hvd.elastic.ElasticSampler(range(12), shuffle=False)
    state = hvd.elastic.TorchState(sampler=sampler)
    own = list(sampler)[:2]
    sampler.record_indices(own)
    state.leave_generation()
    every = {index for part in hvd.allgather_object(own) for index in part}
    assert set(sampler.state_dict()["processed_indices"]) == every


def _outer_training() -> tuple[torch.nn.Linear, torch.optim.SGD]:
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    strategy = hvd.strategies.LocalSGD(
        period=2,
        within_node="period",
        outer=lambda tensors: torch.optim.SGD(tensors, lr=0.7, momentum=0.9),
    )
    hvd.DistributedOptimizer(optimizer, model.named_parameters(), strategy=strategy)
    return model, optimizer


def check_a_commit_between_two_averages_with_an_outer_optimizer() -> None:
    model, optimizer = _outer_training()
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer)
    for _ in range(3):
        _step(model, optimizer)
        state.commit()
    _step(model, optimizer)
    once = copy.deepcopy(model.state_dict())
    state.restore()
    _step(model, optimizer)
    torch.testing.assert_close(model.state_dict(), once, rtol=0.0, atol=0.0)


def check_an_outer_optimizer_forgets_a_replaced_parameter() -> None:
    model, optimizer = _outer_training()
    for _ in range(3):
        _step(model, optimizer)
    model.weight = torch.nn.Parameter(torch.ones(1, 2))
    optimizer.param_groups[0]["params"][0] = model.weight
    for _ in range(4):
        _step(model, optimizer)
    strategy = hvd.strategies.of(optimizer)
    saved = [copy.deepcopy(one.state_dict()) for one in (model, optimizer, strategy)]
    again = _outer_training()
    parts: list[Any] = [*again, hvd.strategies.of(again[1])]
    for part, taken in zip(parts, saved, strict=True):
        part.load_state_dict(taken)
    for _ in range(3):
        _step(model, optimizer)
        _step(*again)
    torch.testing.assert_close(again[0].state_dict(), model.state_dict(), rtol=0.0, atol=0.0)
