"""DistributedOptimizer on several ranks: copies, failures, GradScaler, schedulers. All sums are exact."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from small_gradients import add_gradients, gradient_of, make_parameters, sum_of_ranks, wrapped_sgd


@pytest.mark.parametrize("np", [1, 2, 3])
def test_optimizer_life(np: int, check: Check) -> None:
    run_check(check, np)


def check_copies_and_unpickled_optimizers_are_plain() -> None:
    parameters = make_parameters(2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0, momentum=0.5), op=hvd.Sum)
    add_gradients(*((parameter, 1.0) for parameter in parameters))
    optimizer.step()
    for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert type(copied) is torch.optim.SGD
        assert "synchronize" not in vars(copied)
        theirs = copied.param_groups[0]["params"]
        for parameter in theirs:
            parameter.grad = None
        add_gradients(*((parameter, hvd.rank() + 1.0) for parameter in theirs))
        assert gradient_of(theirs[0]) == [hvd.rank() + 1.0] * 3
        if hvd.rank() == 0:
            copied.step()  # alone: synchronises nothing
    model = torch.nn.Linear(2, 2)
    hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    ema = copy.deepcopy(model)
    if hvd.rank() == 0:
        ema(torch.ones(1, 2)).sum().backward()


def check_a_dropped_optimizer_leaves_its_parameters() -> None:
    (parameter,) = make_parameters(1)
    wrapped_sgd([parameter])
    add_gradients((parameter, hvd.rank() + 1.0))
    assert gradient_of(parameter) == [hvd.rank() + 1.0] * 3


def check_sparse_as_dense() -> None:
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    plain = torch.optim.SGD(embedding.parameters(), lr=1.0)
    hvd.DistributedOptimizer(plain, op=hvd.Sum, sparse_as_dense=True)
    embedding(torch.tensor([hvd.rank()])).sum().backward()
    assert embedding.weight.grad is not None
    dense = embedding.weight.grad.to_dense()  # a single process leaves it sparse
    assert dense.tolist() == [[float(row < hvd.size())] * 2 for row in range(4)]


def check_other_operations() -> None:
    for op, expected in ((hvd.Max, hvd.size()), (hvd.Min, 1.0)):
        (parameter,) = make_parameters(1)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), op=op)
        add_gradients((parameter, hvd.rank() + 1.0))
        assert gradient_of(parameter) == [expected] * 3
        optimizer.step()
        optimizer.zero_grad()
        add_gradients((parameter, hvd.rank() + 1.0))
        if hvd.size() > 1:
            with pytest.raises(RuntimeError, match="second backward"):
                add_gradients((parameter, 1.0))


def check_a_backward_that_raises() -> None:
    used, other = make_parameters(2)
    optimizer = wrapped_sgd([used, other])

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
            add_gradients((used, 1.0), (other, 2.0))
        optimizer.zero_grad()
        add_gradients((used, hvd.rank() + 1.0), (other, 1.0))
        assert gradient_of(used) == [sum_of_ranks()] * 3
        assert gradient_of(other) == [hvd.size()] * 3
        optimizer.step()
        optimizer.zero_grad()


def check_grad_scaler_and_schedulers() -> None:
    (parameter,) = make_parameters(1)
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


@needs_ranks(2)
def check_a_mismatch_is_an_error_on_all_and_training_goes_on() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(3 + (hvd.rank() == 0))), torch.nn.Parameter(torch.zeros(2))]
    optimizer = wrapped_sgd(parameters)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"noname.0.0"):
            add_gradients(*((parameter, 1.0) for parameter in parameters))
        optimizer.zero_grad()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def check_wrong_arguments() -> None:
    model = torch.nn.Linear(2, 3)
    groups: list[dict[str, Any]] = [{"params": [model.weight]}, {"params": [model.bias]}]
    plain = torch.optim.SGD(groups, lr=1.0)
    pairs = model.named_parameters()
    assert len(list(pairs)) == 2
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"compression": "fp16"}, "compression is 'fp16'"),
        ({"compression": hvd.Compression}, "such as hvd.Compression.fp16"),
        ({"named_parameters": pairs}, "a generator that was used before"),
        ({"named_parameters": [("w", model.weight)]}, r"1 of .* 2 .* group 1, number 0, shape \(3,\)"),
    ]
    for arguments, text in wrong:
        with pytest.raises(ValueError, match=text):
            hvd.DistributedOptimizer(plain, **arguments)
    assert "synchronize" not in vars(plain)


@needs_ranks(2)
def check_other_parameters_on_one_rank_are_an_error_on_all() -> None:
    number = 4 if hvd.rank() == 0 else 2
    for groups in (None, 2):
        parameters = make_parameters(number)
        optimizer = wrapped_sgd(parameters, groups=groups)
        text = r"rank 0 has 'noname.0.2' \(of 4 parameters\), rank 1 \(2 parameters\) does not"
        with pytest.raises(hvd.HorovodInternalError, match=text):
            add_gradients(*((parameter, 1.0) for parameter in parameters))
        hvd.DistributedOptimizer(optimizer, op=hvd.Sum)  # what was in flight is nobody's now
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def check_a_new_job_counts_the_optimizers_anew() -> None:
    (old,) = make_parameters(1)
    wrapped = [wrapped_sgd([old])]
    if hvd.rank() == 0:
        wrapped += [wrapped_sgd(make_parameters(1)) for _ in range(2)]
    hvd.shutdown()
    hvd.init()
    (new,) = make_parameters(1)
    wrapped.append(wrapped_sgd([new]))
    for parameters in ([new], [old, new]):  # one of the last job goes on, beside it
        for parameter in parameters:
            parameter.grad = None
        for optimizer in wrapped:
            optimizer.zero_grad()
        add_gradients(*((parameter, hvd.rank() + 1.0) for parameter in parameters))
        assert [gradient_of(parameter) for parameter in parameters] == [[sum_of_ranks()] * 3] * len(
            parameters
        )
