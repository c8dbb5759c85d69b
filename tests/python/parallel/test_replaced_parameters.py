"""Parameters that are replaced, added to or removed from an optimizer's groups between two steps."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from small_gradients import POOLED, WIRE, gradient_of, make_parameters, sum_of_ranks, wrapped_sgd

Parameters = list[torch.nn.Parameter]
WAYS = {"new": {}, "pooled": {POOLED: "1"}, "half": {POOLED: "1", WIRE: "bf16"}}
NUMBER = 4


@pytest.mark.parametrize(("way", "np"), [("pooled", 1), *((way, np) for way in WAYS for np in (2, 4))])
def test_replaced_parameters(way: str, np: int, check: Check) -> None:
    run_check(check, np, env=WAYS[way])


def _backward(parameters: Parameters) -> None:
    """The gradients are rank + 1, twice that, and so on."""
    own = hvd.rank() + 1.0
    torch.stack([(p * own * (index + 1)).sum() for index, p in enumerate(parameters)]).sum().backward()


def _step(optimizer: torch.optim.Optimizer, parameters: Parameters, zero_first: bool) -> None:
    """Takes a step, in which each parameter moves by the sum of all ranks' gradients."""
    before = [parameter.detach().clone() for parameter in parameters]
    if zero_first:
        optimizer.zero_grad()
    _backward(parameters)
    if zero_first:  # the new ones are known already
        expected = [[sum_of_ranks() * (index + 1)] * p.numel() for index, p in enumerate(parameters)]
        assert [gradient_of(parameter) for parameter in parameters] == expected
    optimizer.step()
    for index, (parameter, old) in enumerate(zip(parameters, before, strict=True)):
        moved = (old.double() - parameter.detach().double()).tolist()
        assert moved == [sum_of_ranks() * (index + 1)] * parameter.numel(), index
    if not zero_first:
        optimizer.zero_grad()


def _in_buckets(optimizer: torch.optim.Optimizer) -> set[int]:
    """Returns the ids of the parameters whose gradients are in buckets."""
    wrapper: Any = wrapper_of(optimizer)
    buckets = wrapper.gradient_hooks.sync._table._buckets
    return {id(gradient.core.parameter) for bucket in buckets for gradient in bucket.members}


def _check_steps(
    optimizer: torch.optim.Optimizer, parameters: Parameters, zero_first: bool, pooled: bool = True
) -> None:
    """Takes steps until there is a pool again, which has exactly these parameters."""
    for _ in range(5):
        _step(optimizer, parameters, zero_first)
    if hvd.size() > 1 and pooled:
        assert _in_buckets(optimizer) == set(map(id, parameters))


def check_replaced() -> None:
    for zero_first in (False, True):
        parameters = make_parameters(NUMBER)
        optimizer = wrapped_sgd(parameters)
        for size in (3, 5):
            parameters[1] = torch.nn.Parameter(torch.zeros(size))
            optimizer.param_groups[0]["params"][1] = parameters[1]
            _check_steps(optimizer, parameters, zero_first)


def check_another_list() -> None:
    """A model that was changed: ``params = list(model.parameters())``, here of other numbers."""
    for number in (NUMBER, NUMBER - 2, NUMBER + 3):
        parameters = make_parameters(NUMBER)
        optimizer = wrapped_sgd(parameters)
        parameters = [*make_parameters(1), *parameters[1:number], *make_parameters(max(0, number - NUMBER))]
        optimizer.param_groups[0]["params"] = list(parameters)
        _check_steps(optimizer, parameters, zero_first=True)


def check_the_same_shape_replaced_everywhere() -> None:
    parameters = make_parameters(NUMBER)
    optimizer = wrapped_sgd(parameters)
    for _ in range(3):
        parameters = make_parameters(NUMBER)
        optimizer.param_groups[0]["params"][:] = parameters
        _check_steps(optimizer, parameters, zero_first=True)


def check_removed_and_added() -> None:
    parameters = make_parameters(NUMBER)
    optimizer = wrapped_sgd(parameters)
    removed = optimizer.param_groups[0]["params"].pop(1)
    parameters.pop(1)
    _check_steps(optimizer, parameters, zero_first=True)
    parameters.append(torch.nn.Parameter(torch.zeros(2)))
    optimizer.param_groups[0]["params"].append(parameters[-1])
    _check_steps(optimizer, parameters, zero_first=True)
    parameters.append(removed)
    optimizer.add_param_group({"params": [removed]})
    _check_steps(optimizer, parameters, zero_first=True)
    parameters[0], parameters[1] = parameters[1], parameters[0]
    optimizer.param_groups[0]["params"][:2] = parameters[:2]
    _check_steps(optimizer, parameters, zero_first=True)


def check_names_stay() -> None:
    first, second, third = make_parameters(3)
    optimizer = wrapped_sgd([first, second], named_parameters=[("a", first), ("b", second), ("c", third)])
    wrapped: Any = optimizer
    new, other = make_parameters(2)
    optimizer.param_groups[0]["params"][0] = new
    optimizer.add_param_group({"params": [third, other]})
    assert wrapped._parameter_names == {new: "a", second: "b", third: "c", other: "noname.1.1"}
    _check_steps(optimizer, [new, second, third, other], zero_first=True)
    optimizer.param_groups[0]["params"][:] = [second]
    _check_steps(optimizer, [second, third, other], zero_first=True)
    assert wrapped._parameter_names == {second: "b", third: "c", other: "noname.1.1"}
    _backward([second, third, other])
    optimizer.step()


def check_unnamed_ones_that_move() -> None:
    """A name belongs to its parameter: a new one at the place gets another."""
    parameters = make_parameters(3)
    optimizer = wrapped_sgd(parameters)
    optimizer.param_groups[0]["params"].pop(0)
    new = torch.nn.Parameter(torch.zeros(7))
    optimizer.param_groups[0]["params"].append(new)
    _check_steps(optimizer, [*parameters[1:], new], zero_first=True)
    wrapped: Any = optimizer
    assert sorted(wrapped._parameter_names.values()) == ["noname.0.1", "noname.0.2", "noname.0.2.2"]


def check_the_old_one_is_let_go() -> None:
    parameters = make_parameters(NUMBER)
    optimizer = wrapped_sgd(parameters)
    old = parameters[1]
    parameters[1] = torch.nn.Parameter(torch.zeros(3))
    optimizer.param_groups[0]["params"][1] = parameters[1]
    _check_steps(optimizer, parameters, zero_first=True)
    assert not old._backward_hooks
    assert not old._post_accumulate_grad_hooks
    old.grad = None
    if hvd.rank() == 0:  # nobody else takes part in it
        (old * 3.0).sum().backward()
        assert gradient_of(old) == [3.0] * 3
    gone = weakref.ref(old)
    del old
    gc.collect()
    assert gone() is None


def check_the_old_one_goes_to_another_optimizer() -> None:
    parameters = make_parameters(NUMBER)
    optimizer = wrapped_sgd(parameters)
    moved, parameters[1] = parameters[1], torch.nn.Parameter(torch.zeros(3))
    optimizer.param_groups[0]["params"][1] = parameters[1]
    other = wrapped_sgd([moved])
    for _ in range(4):
        _step(optimizer, parameters, zero_first=True)
        _step(other, [moved], zero_first=True)


def check_groups() -> None:
    """A new parameter takes the place of the old one in its group."""
    for groups in (1, 2):
        parameters = make_parameters(NUMBER)
        optimizer = wrapped_sgd(parameters, groups=groups)
        for number in (0, 3):
            _step(optimizer, parameters, zero_first=True)
            optimizer.zero_grad()
            parameters[number] = torch.nn.Parameter(torch.zeros(number + 1))
            optimizer.param_groups[0]["params"][number] = parameters[number]
            _check_steps(optimizer, parameters, zero_first=number == 0, pooled=False)
            wrapper: Any = wrapper_of(optimizer)
            if hvd.size() > 1:
                sizes = [len(group.gradients) for group in wrapper.gradient_hooks.sync._table.groups()]
                assert sizes == [NUMBER // groups] * groups


def check_passes() -> None:
    parameters = make_parameters(NUMBER)
    optimizer = wrapped_sgd(parameters, backward_passes_per_step=2)
    parameters[2] = torch.nn.Parameter(torch.zeros(3))
    optimizer.param_groups[0]["params"][2] = parameters[2]
    for _ in range(4):
        for _ in range(2):
            _backward(parameters)
        optimizer.step()
        assert [gradient_of(p) for p in parameters] == [
            [2.0 * sum_of_ranks() * (index + 1)] * 3 for index in range(NUMBER)
        ]
        optimizer.zero_grad()


def check_nothing_that_was_kept_back_is_lost() -> None:
    """The ranks flush what techniques keep of the other parameters before they lay the pool out anew."""
    parameters = make_parameters(NUMBER, 8)
    strategy = "csc:keep=0.5,chunk_elements=8,dense_below=0,momentum=none"
    optimizer = wrapped_sgd(parameters, strategy=strategy)
    total = [0] * NUMBER
    for step in range(13):
        if step == 5:
            parameters[1] = torch.nn.Parameter(torch.zeros(8))
            optimizer.param_groups[0]["params"][1] = parameters[1]
            total[1] = 0
        if step == 12:
            hvd.strategies.of(optimizer).flush()
        optimizer.zero_grad()
        _backward(parameters)
        optimizer.step()
        total = [sum_ + 1 for sum_ in total]
    for index, (parameter, times) in enumerate(zip(parameters, total, strict=True)):
        assert parameter.detach().tolist() == [-times * sum_of_ranks() * (index + 1)] * 8
    if hvd.size() > 1:
        assert _in_buckets(optimizer) == set(map(id, parameters))


def check_masters() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16)) for _ in range(NUMBER)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), op=hvd.Sum, master_weights=True)
    _step(optimizer, parameters, zero_first=True)
    masters = list(optimizer.param_groups[0]["params"])
    parameters[1] = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    optimizer.param_groups[0]["params"][1] = parameters[1]
    for _ in range(4):
        _step(optimizer, parameters, zero_first=True)
    assert len(optimizer.state_dict()["master_weights"]) == NUMBER
    assert {one.dtype for one in optimizer.param_groups[0]["params"]} == {torch.float32}
    gone = weakref.ref(masters.pop(1))
    gc.collect()
    assert gone() is None


def check_local_steps_take_the_new_one() -> None:
    """Strategies that average parameters average the new one."""
    parameters = make_parameters(2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=1.0), strategy=hvd.strategies.LocalSGD(2, within_node="period")
    )
    parameters[1] = torch.nn.Parameter(torch.zeros(3))
    optimizer.param_groups[0]["params"][1] = parameters[1]
    for cycle in range(1, 4):
        for _ in range(2):
            optimizer.zero_grad()
            _backward(parameters)
            optimizer.step()
        mean = sum_of_ranks() / hvd.size()
        assert [p.tolist() for p in parameters] == [[-2.0 * cycle * mean * k] * 3 for k in (1, 2)]


@needs_ranks(2)
def check_a_parameter_replaced_on_one_rank_only() -> None:
    """If it has another shape, all ranks hear of it, and the job goes on."""
    parameters = make_parameters(NUMBER)
    optimizer = wrapped_sgd(parameters)
    if hvd.rank() == 0:
        parameters[1] = torch.nn.Parameter(torch.zeros(9))
        optimizer.param_groups[0]["params"][1] = parameters[1]
    optimizer.zero_grad()
    with pytest.raises(hvd.HorovodInternalError, match="rank 0"):
        _backward(parameters)
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


def check_noticed_between_backward_and_step() -> None:
    """Whoever notices the new parameter, the step reduces the gradient that it has already."""
    parameters = make_parameters(NUMBER)
    optimizer: Any = wrapped_sgd(parameters)
    for notice in (
        lambda: hvd.broadcast_optimizer_state(optimizer, root_rank=0),
        lambda: optimizer.set_backward_passes_per_step(1),
        lambda: optimizer.add_param_group({"params": make_parameters(1)}),
    ):
        parameters[1] = torch.nn.Parameter(torch.zeros(3))
        optimizer.param_groups[0]["params"][1] = parameters[1]
        _backward(parameters)
        notice()
        optimizer.step()
        assert [p.grad.tolist() for p in parameters if p.grad is not None] == [
            [sum_of_ranks() * (index + 1)] * 3 for index in range(NUMBER)
        ]
        optimizer.zero_grad()
