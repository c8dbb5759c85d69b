"""DistributedOptimizer on several ranks. Gradients are small integers or dyadic, so sums are exact."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import roundelay.torch as hvd
from ranks import run_checks


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_optimizer(np: int) -> None:
    run_checks(__file__, np)


def _parameters(number: int, size: int = 3) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(size)) for _ in range(number)]


def _sgd(parameters: list[torch.nn.Parameter], **arguments: Any) -> torch.optim.SGD:
    return hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), op=hvd.Sum, **arguments)


def _backward(*factors: tuple[torch.nn.Parameter, float]) -> None:
    """Adds `factor` to each parameter's gradient."""
    torch.stack([(parameter * factor).sum() for parameter, factor in factors]).sum().backward()


def _gradient(parameter: torch.nn.Parameter) -> list[float]:
    assert parameter.grad is not None
    values: list[float] = parameter.grad.tolist()
    return values


def _sum_of_ranks() -> float:
    return float(sum(range(1, hvd.size() + 1)))


def check_gradients_are_complete_after_backward() -> None:
    parameters = _parameters(5)
    optimizer = _sgd(parameters)
    for _ in range(3):
        _backward(*((parameter, hvd.rank() + 1) for parameter in parameters))
        for parameter in parameters:
            assert _gradient(parameter) == [_sum_of_ranks()] * 3
        optimizer.step()
        optimizer.zero_grad()
    assert parameters[0].tolist() == [-3 * _sum_of_ranks()] * 3


def check_average_and_predivide() -> None:
    for factor in (1.0, 2.0):
        (parameter,) = _parameters(1)
        plain = torch.optim.SGD([parameter], lr=1.0)
        optimizer = hvd.DistributedOptimizer(plain, gradient_predivide_factor=factor)
        _backward((parameter, 4.0 * hvd.size() * (hvd.rank() + 1)))
        assert _gradient(parameter) == [4.0 * _sum_of_ranks()] * 3
        optimizer.step()


def check_compression_of_gradients() -> None:
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        parameters = _parameters(2)
        optimizer = _sgd(parameters, compression=compression)
        for step in range(2):
            optimizer.zero_grad(set_to_none=step == 0)
            _backward(*((parameter, hvd.rank() + 1) for parameter in parameters))
            assert parameters[0].grad is not None
            assert parameters[0].grad.dtype == torch.float32
            assert _gradient(parameters[0]) == [_sum_of_ranks()] * 3


def check_unused_on_some_ranks_gets_the_others_gradient() -> None:
    used, partly = _parameters(2)
    optimizer = _sgd([used, partly])
    for _ in range(3):
        if hvd.rank() == 0:
            _backward((used, 1.0), (partly, 5.0))
        else:
            _backward((used, 1.0))
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()  # between backward and step
        optimizer.step()
        assert _gradient(used) == [hvd.size()] * 3
        assert _gradient(partly) == [5.0] * 3
        optimizer.zero_grad()


def check_unused_on_all_ranks_keeps_its_gradient() -> None:
    used, none, kept = _parameters(3)
    optimizer = hvd.DistributedOptimizer(torch.optim.AdamW([used, none, kept], lr=0.1))
    for _ in range(3):
        _backward((used, 1.0))
        kept.grad = torch.full((3,), 7.0)
        optimizer.step()
        assert none.grad is None
        assert none.tolist() == [0.0] * 3
        assert _gradient(kept) == [7.0] * 3
        optimizer.zero_grad()


def check_a_rank_without_backward() -> None:
    (parameter,) = _parameters(1)
    optimizer = _sgd([parameter])
    if hvd.rank() == 0:
        _backward((parameter, 3.0))
    optimizer.step()
    assert parameter.tolist() == [-3.0] * 3
    optimizer.zero_grad()
    optimizer.step()  # no rank had a gradient
    assert parameter.grad is None
    assert parameter.tolist() == [-3.0] * 3


def check_ranks_with_different_numbers_of_backwards() -> None:
    one, two = _parameters(2)
    optimizer = _sgd([one, two])
    for _ in range(2):
        optimizer.zero_grad()
        _backward((one, 1.0))
        if hvd.rank() == 0:
            _backward((two, 4.0))
        optimizer.step()
        assert _gradient(one) == [hvd.size()] * 3
        assert _gradient(two) == [4.0] * 3


def check_gradients_made_without_backward() -> None:
    parameters = _parameters(2)
    optimizer = _sgd(parameters)
    for parameter in parameters:
        parameter.grad = torch.full((3,), hvd.rank() + 1.0)
    optimizer.step()
    assert parameters[1].tolist() == [-_sum_of_ranks()] * 3


def check_several_backwards_before_a_step() -> None:
    shared, other = _parameters(2)
    for set_to_none in (True, False):
        optimizer = _sgd([shared, other])
        _backward((shared, 1.0))
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
        _backward((shared, hvd.rank() + 1.0))
        assert _gradient(shared) == [_sum_of_ranks()] * 3
        kept = shared.grad
        _backward((shared, 2.0), (other, 1.0))
        assert _gradient(shared) == [_sum_of_ranks() + 2.0 * hvd.size()] * 3
        assert shared.grad is kept
        _backward((other, hvd.rank() + 1.0))
        assert _gradient(other) == [hvd.size() + _sum_of_ranks()] * 3
        optimizer.step()
        optimizer.zero_grad()


def check_backward_passes_per_step() -> None:
    used, seldom = _parameters(2)
    optimizer = _sgd([used, seldom], backward_passes_per_step=3)
    before = hvd.stats()["tensors"]
    for step in range(2):
        for number in range(3):
            if number == 1:
                _backward((used, hvd.rank() + 1.0), (seldom, 2.0))
            else:
                _backward((used, hvd.rank() + 1.0))
            if number < 2 and hvd.size() > 1:
                assert _gradient(used) == [(number + 1) * (hvd.rank() + 1.0)] * 3
        optimizer.step()
        assert _gradient(used) == [3 * _sum_of_ranks()] * 3, step
        assert _gradient(seldom) == [2.0 * hvd.size()] * 3
        optimizer.zero_grad()
    assert hvd.size() == 1 or hvd.stats()["tensors"] > before
    _backward((used, hvd.rank() + 1.0))  # an epoch's last window is short
    optimizer.step()
    assert _gradient(used) == [_sum_of_ranks()] * 3
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(1)  # type: ignore[attr-defined]
    _backward((used, hvd.rank() + 1.0))
    assert _gradient(used) == [_sum_of_ranks()] * 3


def check_clipping_after_backward_and_after_synchronize() -> None:
    (parameter,) = _parameters(1, size=1)
    optimizer = _sgd([parameter])
    for explicit in (False, True, True):
        optimizer.zero_grad()
        _backward((parameter, 10.0))
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
    body, head = _parameters(2)
    body.requires_grad_(False)
    optimizer = _sgd([body, head])
    for step in range(6):
        body.requires_grad_(step in (2, 3, 5))
        optimizer.zero_grad()
        _backward((body, hvd.rank() + 1.0), (head, hvd.rank() + 1.0))
        optimizer.step()
        assert _gradient(head) == [_sum_of_ranks()] * 3, step
        assert (body.grad is not None) == body.requires_grad
        if body.requires_grad:
            assert _gradient(body) == [_sum_of_ranks()] * 3, step
    assert body.tolist() == [-3 * _sum_of_ranks()] * 3


def check_added_parameters() -> None:
    first, second = _parameters(2)
    optimizer = _sgd([first])
    _backward((first, 1.0))
    optimizer.step()
    optimizer.add_param_group({"params": [second], "lr": 2.0})
    optimizer.zero_grad()
    _backward((first, 1.0), (second, hvd.rank() + 1.0))
    assert _gradient(second) == [_sum_of_ranks()] * 3
    optimizer.step()
    assert second.tolist() == [-2 * _sum_of_ranks()] * 3


def check_closures() -> None:
    torch.manual_seed(3)
    target = torch.randn(3)
    (parameter,) = _parameters(1)
    optimizer = hvd.DistributedOptimizer(torch.optim.LBFGS([parameter], max_iter=5))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (parameter - target * (hvd.rank() + 1)).square().sum()
        loss.backward()
        return hvd.allreduce(loss.detach())

    for _ in range(3):
        optimizer.step(closure)
    expected = target * _sum_of_ranks() / hvd.size()
    torch.testing.assert_close(parameter.detach(), expected, rtol=1e-4, atol=1e-5)
    (by_keyword,) = _parameters(1)
    sgd = _sgd([by_keyword])

    def without_backward() -> float:
        by_keyword.grad = torch.full((3,), hvd.rank() + 1.0)
        return 0.0

    sgd.step(closure=without_backward)
    assert by_keyword.tolist() == [-_sum_of_ranks()] * 3


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


def check_two_optimizers_in_different_orders() -> None:
    first, second = _parameters(2)
    one, two = _sgd([first]), _sgd([second])
    for step in range(3):
        one.zero_grad()
        two.zero_grad()
        order = [(first, hvd.rank() + 1.0), (second, 2.0)]
        _backward(*(order if hvd.rank() % 2 else reversed(order)))
        assert _gradient(first) == [_sum_of_ranks()] * 3
        two.step()
        one.step()
        assert second.tolist() == [-2.0 * hvd.size() * (step + 1)] * 3


def check_a_parameter_of_two_optimizers_is_reduced_once() -> None:
    shared, head_one, head_two = _parameters(3)
    one, two = _sgd([shared, head_one]), _sgd([shared, head_two])
    for _ in range(2):
        for optimizer, head in ((one, head_one), (two, head_two)):
            optimizer.zero_grad()
            _backward((shared, hvd.rank() + 1.0), (head, 1.0))
            optimizer.step()
            assert _gradient(shared) == [_sum_of_ranks()] * 3
            assert _gradient(head) == [hvd.size()] * 3
    assert shared.tolist() == [-4 * _sum_of_ranks()] * 3


def check_a_wrapped_model_again() -> None:
    (parameter,) = _parameters(1)
    plain = torch.optim.SGD([parameter], lr=1.0)
    for op, expected in ((hvd.Sum, _sum_of_ranks()), (hvd.Max, hvd.size())):
        assert hvd.DistributedOptimizer(plain, op=op) is plain
        plain.zero_grad()
        _backward((parameter, hvd.rank() + 1.0))
        plain.step()
        assert _gradient(parameter) == [expected] * 3


def check_copies_and_unpickled_optimizers_are_plain() -> None:
    parameters = _parameters(2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0, momentum=0.5), op=hvd.Sum)
    _backward(*((parameter, 1.0) for parameter in parameters))
    optimizer.step()
    for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert type(copied) is torch.optim.SGD
        assert "synchronize" not in vars(copied)
        theirs = copied.param_groups[0]["params"]
        for parameter in theirs:
            parameter.grad = None
        _backward(*((parameter, hvd.rank() + 1.0) for parameter in theirs))
        assert _gradient(theirs[0]) == [hvd.rank() + 1.0] * 3
        if hvd.rank() == 0:
            copied.step()  # alone: synchronises nothing
    model = torch.nn.Linear(2, 2)
    hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    ema = copy.deepcopy(model)
    if hvd.rank() == 0:
        ema(torch.ones(1, 2)).sum().backward()


def check_a_dropped_optimizer_leaves_its_parameters() -> None:
    (parameter,) = _parameters(1)
    _sgd([parameter])
    _backward((parameter, hvd.rank() + 1.0))
    assert _gradient(parameter) == [hvd.rank() + 1.0] * 3


def check_sparse_gradients() -> None:
    if hvd.size() == 1:
        return
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=1.0))
    with pytest.raises(ValueError, match="sparse_as_dense"):
        embedding(torch.tensor([hvd.rank()])).sum().backward()
    optimizer.zero_grad()
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum, sparse_as_dense=True)
    embedding(torch.tensor([hvd.rank()])).sum().backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.tolist() == [[float(row < hvd.size())] * 2 for row in range(4)]


def check_other_operations() -> None:
    for op, expected in ((hvd.Max, hvd.size()), (hvd.Min, 1.0)):
        (parameter,) = _parameters(1)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), op=op)
        _backward((parameter, hvd.rank() + 1.0))
        assert _gradient(parameter) == [expected] * 3
        optimizer.step()
        optimizer.zero_grad()
        _backward((parameter, hvd.rank() + 1.0))
        if hvd.size() > 1:
            with pytest.raises(RuntimeError, match="second backward"):
                _backward((parameter, 1.0))


def check_a_backward_that_raises() -> None:
    used, other = _parameters(2)
    optimizer = _sgd([used, other])

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_: Any, *gradients: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError("made to fail")

    for failing_ranks in (range(hvd.size()), range(1)):
        loss = Fails.apply(used * 1.0).sum() + (other * 2.0).sum()  # type: ignore[no-untyped-call]
        if hvd.rank() in failing_ranks:
            with pytest.raises(ZeroDivisionError):
                loss.backward()
        else:
            _backward((used, 1.0), (other, 2.0))
        optimizer.zero_grad()
        _backward((used, hvd.rank() + 1.0), (other, 1.0))
        assert _gradient(used) == [_sum_of_ranks()] * 3
        assert _gradient(other) == [hvd.size()] * 3
        optimizer.step()
        optimizer.zero_grad()


def check_grad_scaler_and_schedulers() -> None:
    (parameter,) = _parameters(1)
    plain = torch.optim.SGD([parameter], lr=8.0)
    before = torch.optim.lr_scheduler.StepLR(plain, step_size=1, gamma=0.5)
    optimizer = hvd.DistributedOptimizer(plain, op=hvd.Sum)
    after = torch.optim.lr_scheduler.StepLR(plain, step_size=1, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for value in (1.0, float("inf") if hvd.rank() == 0 else 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale((parameter * value).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert parameter.tolist() == [-2 * 8.0 * hvd.size()] * 3  # the infinite step was skipped on every rank
    before.step()
    after.step()
    assert optimizer.param_groups[0]["lr"] < 8.0


def check_a_mismatch_is_an_error_on_all_and_training_goes_on() -> None:
    if hvd.size() == 1:
        return
    parameters = [torch.nn.Parameter(torch.zeros(3 + (hvd.rank() == 0))), torch.nn.Parameter(torch.zeros(2))]
    optimizer = _sgd(parameters)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"noname.0.0"):
            _backward(*((parameter, 1.0) for parameter in parameters))
        optimizer.zero_grad()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
