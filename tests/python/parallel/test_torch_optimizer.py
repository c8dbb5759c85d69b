"""DistributedOptimizer on several ranks: which gradients are reduced, and when. All sums are exact."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import roundelay.torch as hvd
from ranks import Check, run_check
from small_gradients import (
    ALONE,
    POOLED,
    add_gradients,
    gradient_of,
    make_parameters,
    sum_of_ranks,
    wrapped_sgd,
)


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_optimizer(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.parametrize("np", [2, 4])
def test_optimizer_with_gradients_in_a_pool(np: int, check: Check) -> None:
    run_check(check, np, env={POOLED: "1"})


@pytest.mark.parametrize("np", [2, 4])
def test_optimizer_without_a_pool(np: int, check: Check) -> None:
    run_check(check, np, env=ALONE)


def check_gradients_are_complete_after_backward() -> None:
    parameters = make_parameters(5)
    optimizer = wrapped_sgd(parameters)
    for _ in range(3):
        add_gradients(*((parameter, hvd.rank() + 1) for parameter in parameters))
        for parameter in parameters:
            assert gradient_of(parameter) == [sum_of_ranks()] * 3
        optimizer.step()
        optimizer.zero_grad()
    assert parameters[0].tolist() == [-3 * sum_of_ranks()] * 3


def check_average_and_predivide() -> None:
    for factor in (1.0, 2.0):
        (parameter,) = make_parameters(1)
        plain = torch.optim.SGD([parameter], lr=1.0)
        optimizer = hvd.DistributedOptimizer(plain, gradient_predivide_factor=factor)
        add_gradients((parameter, 4.0 * hvd.size() * (hvd.rank() + 1)))
        assert gradient_of(parameter) == [4.0 * sum_of_ranks()] * 3
        optimizer.step()


def check_compression_of_gradients() -> None:
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        parameters = make_parameters(2)
        optimizer = wrapped_sgd(parameters, compression=compression)
        for step in range(2):
            optimizer.zero_grad(set_to_none=step == 0)
            add_gradients(*((parameter, hvd.rank() + 1) for parameter in parameters))
            assert parameters[0].grad is not None
            assert parameters[0].grad.dtype == torch.float32
            assert gradient_of(parameters[0]) == [sum_of_ranks()] * 3


def check_unused_on_some_ranks_gets_the_others_gradient() -> None:
    used, partly = make_parameters(2)
    optimizer = wrapped_sgd([used, partly])
    for _ in range(3):
        if hvd.rank() == 0:
            add_gradients((used, 1.0), (partly, 5.0))
        else:
            add_gradients((used, 1.0))
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()  # between backward and step
        optimizer.step()
        assert gradient_of(used) == [hvd.size()] * 3
        assert gradient_of(partly) == [5.0] * 3
        optimizer.zero_grad()


def check_unused_on_all_ranks_keeps_its_gradient() -> None:
    used, none, kept = make_parameters(3)
    optimizer = hvd.DistributedOptimizer(torch.optim.AdamW([used, none, kept], lr=0.1))
    for _ in range(3):
        add_gradients((used, 1.0))
        kept.grad = torch.full((3,), 7.0)
        optimizer.step()
        assert none.grad is None
        assert none.tolist() == [0.0] * 3
        assert gradient_of(kept) == [7.0] * 3
        optimizer.zero_grad()


def check_a_rank_without_backward() -> None:
    (parameter,) = make_parameters(1)
    optimizer = wrapped_sgd([parameter])
    if hvd.rank() == 0:
        add_gradients((parameter, 3.0))
    optimizer.step()
    assert parameter.tolist() == [-3.0] * 3
    optimizer.zero_grad()
    optimizer.step()  # no rank had a gradient
    assert parameter.grad is None
    assert parameter.tolist() == [-3.0] * 3


def check_ranks_with_different_numbers_of_backwards() -> None:
    one, two = make_parameters(2)
    optimizer = wrapped_sgd([one, two])
    for _ in range(2):
        optimizer.zero_grad()
        add_gradients((one, 1.0))
        if hvd.rank() == 0:
            add_gradients((two, 4.0))
        optimizer.step()
        assert gradient_of(one) == [hvd.size()] * 3
        assert gradient_of(two) == [4.0] * 3


def check_gradients_made_without_backward() -> None:
    parameters = make_parameters(2)
    optimizer = wrapped_sgd(parameters)
    for parameter in parameters:
        parameter.grad = torch.full((3,), hvd.rank() + 1.0)
    optimizer.step()
    assert parameters[1].tolist() == [-sum_of_ranks()] * 3


def check_several_backwards_before_a_step() -> None:
    shared, other = make_parameters(2)
    for set_to_none in (True, False):
        optimizer = wrapped_sgd([shared, other])
        add_gradients((shared, 1.0))
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
        add_gradients((shared, hvd.rank() + 1.0))
        assert gradient_of(shared) == [sum_of_ranks()] * 3
        kept = shared.grad
        add_gradients((shared, 2.0), (other, 1.0))
        assert gradient_of(shared) == [sum_of_ranks() + 2.0 * hvd.size()] * 3
        assert shared.grad is kept
        add_gradients((other, hvd.rank() + 1.0))
        assert gradient_of(other) == [hvd.size() + sum_of_ranks()] * 3
        optimizer.step()
        optimizer.zero_grad()


def check_backward_passes_per_step() -> None:
    used, seldom = make_parameters(2)
    optimizer = wrapped_sgd([used, seldom], backward_passes_per_step=3)
    before = hvd.stats()["tensors"]
    for step in range(2):
        for number in range(3):
            if number == 1:
                add_gradients((used, hvd.rank() + 1.0), (seldom, 2.0))
            else:
                add_gradients((used, hvd.rank() + 1.0))
            if number < 2 and hvd.size() > 1:
                assert gradient_of(used) == [(number + 1) * (hvd.rank() + 1.0)] * 3
        optimizer.step()
        assert gradient_of(used) == [3 * sum_of_ranks()] * 3, step
        assert gradient_of(seldom) == [2.0 * hvd.size()] * 3
        optimizer.zero_grad()
    assert hvd.size() == 1 or hvd.stats()["tensors"] > before
    add_gradients((used, hvd.rank() + 1.0))  # an epoch's last window is short
    optimizer.step()
    assert gradient_of(used) == [sum_of_ranks()] * 3
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(1)  # type: ignore[attr-defined]
    add_gradients((used, hvd.rank() + 1.0))
    assert gradient_of(used) == [sum_of_ranks()] * 3


def check_clipping_after_backward_and_after_synchronize() -> None:
    (parameter,) = make_parameters(1, size=1)
    optimizer = wrapped_sgd([parameter])
    for explicit in (False, True, True):
        optimizer.zero_grad()
        add_gradients((parameter, 10.0))
        if explicit:
            optimizer.synchronize()  # type: ignore[attr-defined]
            torch.nn.utils.clip_grad_value_([parameter], 1.0)
            with optimizer.skip_synchronize():  # type: ignore[attr-defined]
                optimizer.step()
        else:
            torch.nn.utils.clip_grad_value_([parameter], 1.0)
            optimizer.step()
    assert parameter.tolist() == [-3.0]


def check_frozen_and_unfrozen() -> None:
    body, head = make_parameters(2)
    body.requires_grad_(False)
    optimizer = wrapped_sgd([body, head])
    for step in range(6):
        body.requires_grad_(step in (2, 3, 5))
        optimizer.zero_grad()
        add_gradients((body, hvd.rank() + 1.0), (head, hvd.rank() + 1.0))
        optimizer.step()
        assert gradient_of(head) == [sum_of_ranks()] * 3, step
        assert (body.grad is not None) == body.requires_grad
        if body.requires_grad:
            assert gradient_of(body) == [sum_of_ranks()] * 3, step
    assert body.tolist() == [-3 * sum_of_ranks()] * 3


def check_added_parameters() -> None:
    first, second = make_parameters(2)
    optimizer = wrapped_sgd([first])
    add_gradients((first, 1.0))
    optimizer.step()
    optimizer.add_param_group({"params": [second], "lr": 2.0})
    optimizer.zero_grad()
    add_gradients((first, 1.0), (second, hvd.rank() + 1.0))
    assert gradient_of(second) == [sum_of_ranks()] * 3
    optimizer.step()
    assert second.tolist() == [-2 * sum_of_ranks()] * 3


def check_closures() -> None:
    torch.manual_seed(3)
    target = torch.randn(3)
    (parameter,) = make_parameters(1)
    optimizer = hvd.DistributedOptimizer(torch.optim.LBFGS([parameter], max_iter=5))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (parameter - target * (hvd.rank() + 1)).square().sum()
        loss.backward()
        return hvd.allreduce(loss.detach())

    for _ in range(3):
        optimizer.step(closure)
    expected = target * sum_of_ranks() / hvd.size()
    torch.testing.assert_close(parameter.detach(), expected, rtol=1e-4, atol=1e-5)
    (by_keyword,) = make_parameters(1)
    sgd = wrapped_sgd([by_keyword])

    def without_backward() -> float:
        by_keyword.grad = torch.full((3,), hvd.rank() + 1.0)
        return 0.0

    sgd.step(closure=without_backward)
    assert by_keyword.tolist() == [-sum_of_ranks()] * 3


def check_checkpointing_inside_backward() -> None:
    for use_reentrant in (True, False):
        layer = torch.nn.Linear(2, 2, bias=False)
        layer.weight.data = torch.eye(2)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=1.0), op=hvd.Sum)
        alone = copy.deepcopy(layer)
        expected = torch.zeros(2, 2)
        for rank in range(hvd.size()):
            x = torch.full((1, 2), rank + 1.0)
            alone.zero_grad()
            alone(alone(x)).sum().backward()
            assert alone.weight.grad is not None
            expected += alone.weight.grad
        for _ in range(2):
            optimizer.zero_grad()
            x = torch.full((1, 2), hvd.rank() + 1.0, requires_grad=True)
            y = checkpoint(layer, x, use_reentrant=use_reentrant)
            checkpoint(layer, y, use_reentrant=use_reentrant).sum().backward()
            assert layer.weight.grad is not None
            assert torch.equal(layer.weight.grad, expected)
            optimizer.synchronize()  # type: ignore[attr-defined]


def check_one_rank_uses_a_checkpointed_layer_twice() -> None:
    """Its gradient arrives twice within one backward: the others take part in both operations."""
    (parameter,) = make_parameters(1)
    optimizer = wrapped_sgd([parameter])
    for _ in range(2):
        optimizer.zero_grad()
        values = torch.zeros(3, requires_grad=True)
        for _ in range(2 if hvd.rank() == 0 else 1):
            values = checkpoint(parameter.add, values, use_reentrant=True)
        values.sum().backward()
        assert gradient_of(parameter) == [hvd.size() + 1.0] * 3
        optimizer.step()


def check_two_optimizers_in_different_orders() -> None:
    first, second = make_parameters(2)
    one, two = wrapped_sgd([first]), wrapped_sgd([second])
    for step in range(3):
        one.zero_grad()
        two.zero_grad()
        order = [(first, hvd.rank() + 1.0), (second, 2.0)]
        add_gradients(*(order if hvd.rank() % 2 else reversed(order)))
        assert gradient_of(first) == [sum_of_ranks()] * 3
        two.step()
        one.step()
        assert second.tolist() == [-2.0 * hvd.size() * (step + 1)] * 3


def check_a_parameter_of_two_optimizers_is_reduced_once() -> None:
    shared, head_one, head_two = make_parameters(3)
    one, two = wrapped_sgd([shared, head_one]), wrapped_sgd([shared, head_two])
    for _ in range(2):
        for optimizer, head in ((one, head_one), (two, head_two)):
            optimizer.zero_grad()
            add_gradients((shared, hvd.rank() + 1.0), (head, 1.0))
            optimizer.step()
            assert gradient_of(shared) == [sum_of_ranks()] * 3
            assert gradient_of(head) == [hvd.size()] * 3
    assert shared.tolist() == [-4 * sum_of_ranks()] * 3


def check_a_wrapped_model_again() -> None:
    (parameter,) = make_parameters(1)
    plain = torch.optim.SGD([parameter], lr=1.0)
    for names in (None, [("weight", parameter)]):
        assert hvd.DistributedOptimizer(plain, names, op=hvd.Sum) is plain
        plain.zero_grad()
        add_gradients((parameter, hvd.rank() + 1.0))
        plain.step()
        assert gradient_of(parameter) == [sum_of_ranks()] * 3
