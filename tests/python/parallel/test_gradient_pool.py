"""Gradients in a pool: what users do with ``.grad``, how ranks come to a pool, and when they do without."""

from __future__ import annotations

import copy
import io
import os
import re
import resource
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay import _core
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from roundelay.torch._internal.optimizer.join_context import join_context
from small_gradients import add_gradients, gradient_of, make_parameters, sum_of_ranks, use_pool, wrapped_sgd


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_gradient_pool(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.parametrize("fabric", [pytest.param("mpi", marks=pytest.mark.slow), "tcp", "shm"])
def test_on_each_fabric_in_small_buckets(fabric: str, check: Check) -> None:
    run_check(check, 3, env={"ROUNDELAY_FABRIC": fabric, "ROUNDELAY_THETA": "64"})


def _buckets(optimizer: torch.optim.Optimizer) -> int:
    wrapper = wrapper_of(optimizer)
    assert wrapper is not None
    return wrapper.buckets()


def _pooled(number: int, **arguments: Any) -> tuple[list[nn.Parameter], torch.optim.SGD]:
    parameters = make_parameters(number)
    optimizer = wrapped_sgd(parameters, **arguments)
    use_pool(optimizer, arguments.get("backward_passes_per_step", 1))
    return parameters, optimizer


def _mine() -> float:
    return hvd.rank() + 1.0


def check_no_memory_on_one_rank_is_no_pool_on_all() -> None:
    """First, while the shared memory is small: the limit is for what extends it."""
    parameters = make_parameters(2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), op=hvd.Sum)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hvd.rank() == hvd.size() - 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            optimizer.zero_grad()
            add_gradients((parameters[0], _mine()), (parameters[1], 1.0))
            optimizer.step()
            assert gradient_of(parameters[0]) == [sum_of_ranks()] * 3
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    texts = [str(warning.message) for warning in caught if "gradient pool" in str(warning.message)]
    fabric = _core.transports()["fabric"]
    assert (_buckets(optimizer) > 0) == (fabric not in {"local", "shm"})  # one rank has no pool
    assert len(texts) == (fabric == "shm" and hvd.rank() == hvd.size() - 1), (fabric, texts)
    assert all("fallocate" in text for text in texts)


def check_a_gradient_that_is_kept_stays_where_it_is() -> None:
    (first, second), optimizer = _pooled(2)
    add_gradients((first, _mine()), (second, 1.0))
    kept = first.grad
    optimizer.step()
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        add_gradients((first, _mine()), (second, 1.0))
        assert first.grad is kept
        assert gradient_of(first) == [sum_of_ranks()] * 3
        assert gradient_of(second) == [hvd.size()] * 3
        optimizer.step()


def check_who_holds_an_earlier_gradient_keeps_its_values() -> None:
    (parameter, other), optimizer = _pooled(2)
    before = hvd.stats()["gradients_moved_out"]
    held: list[torch.Tensor] = []
    arrays = []
    for step in range(4):
        optimizer.zero_grad()
        add_gradients((parameter, _mine() * (step + 1)), (other, 1.0))
        assert parameter.grad is not None
        held.append(parameter.grad)
        arrays.append(other.grad.numpy() if other.grad is not None else None)
        optimizer.step()
    for step, gradient in enumerate(held):
        assert gradient.tolist() == [sum_of_ranks() * (step + 1)] * 3
    assert all(array is not None and array.tolist() == [hvd.size()] * 3 for array in arrays)
    moved_out = 2 * (len(held) - 1) if hvd.size() > 1 else 0  # one rank has no pool
    assert hvd.stats()["gradients_moved_out"] == before + moved_out


def check_what_nobody_holds_is_not_moved_out() -> None:
    parameters, optimizer = _pooled(2)
    before = hvd.stats()["gradients_moved_out"]
    for _ in range(4):
        optimizer.zero_grad()
        add_gradients(*((parameter, 1.0) for parameter in parameters))
        optimizer.step()
        for parameter in parameters:  # Python sees its gradient, too
            assert gradient_of(parameter) == [hvd.size()] * 3
    assert hvd.stats()["gradients_moved_out"] == before


def check_gradients_that_the_user_replaces() -> None:
    (first, second), optimizer = _pooled(2)
    for _ in range(3):
        optimizer.zero_grad()
        first.grad = torch.full((3,), 10.0)
        add_gradients((first, _mine()), (second, 1.0))
        assert gradient_of(first) == [sum_of_ranks() + 10.0 * hvd.size()] * 3
        second.grad = torch.full((3,), 7.0)
        optimizer.step()
        assert gradient_of(second) == [7.0] * 3
    # Views and clones of what is in the pool.
    optimizer.zero_grad()
    add_gradients((first, _mine()), (second, 1.0))
    optimizer.step()
    assert first.grad is not None
    first.grad = first.grad.flip(0).clone()
    second.grad = first.grad
    optimizer.zero_grad(set_to_none=False)
    add_gradients((first, _mine()))
    optimizer.step()
    assert gradient_of(first) == [sum_of_ranks()] * 3


def check_a_gradient_is_a_tensor_of_its_own() -> None:
    (first, second), optimizer = _pooled(2)
    add_gradients((first, _mine()), (second, 1.0))
    optimizer.step()
    gradient = first.grad
    assert gradient is not None
    assert gradient.untyped_storage().nbytes() == 3 * 4
    file = io.BytesIO()
    torch.save(gradient, file)
    assert len(file.getvalue()) < 4096
    assert torch.equal(copy.deepcopy(gradient), gradient)
    gradient.detach_()
    before = gradient.clone()
    hvd.allreduce_(gradient, op=hvd.Average)  # as any tensor, on all ranks or with others that are in no pool
    assert torch.equal(gradient, before)
    mixed = gradient if hvd.rank() == 0 else torch.full((3,), sum_of_ranks())
    hvd.allreduce_(mixed, op=hvd.Sum, name="mixed")
    assert mixed.tolist() == [sum_of_ranks() * hvd.size()] * 3


def check_a_forked_child_has_a_copy() -> None:
    (first, second), optimizer = _pooled(2)
    add_gradients((first, _mine()), (second, 1.0))
    optimizer.step()
    want = [[sum_of_ranks()] * 3, [hvd.size()] * 3]
    child = os.fork()
    if child == 0:
        right = [gradient_of(first), gradient_of(second)] == want
        assert first.grad is not None
        first.grad.zero_()
        right = right and gradient_of(first) == [0.0] * 3
        first.grad = second.grad = None
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [gradient_of(first), gradient_of(second)] == want


def check_frozen_and_unfrozen() -> None:
    (first, second), optimizer = _pooled(2)
    add_gradients((first, _mine()), (second, 5.0))
    optimizer.step()
    second.requires_grad_(False)
    kept = gradient_of(second)
    for _ in range(2):
        first.grad = None
        add_gradients((first, _mine()))
        optimizer.step()
        assert gradient_of(first) == [sum_of_ranks()] * 3
        assert gradient_of(second) == kept
    second.requires_grad_(True)
    optimizer.zero_grad()
    add_gradients((first, 1.0), (second, _mine()))
    optimizer.step()
    assert gradient_of(second) == [sum_of_ranks()] * 3


def check_a_parameter_that_comes_later() -> None:
    (first,), optimizer = _pooled(1)
    (later,) = make_parameters(1)
    optimizer.add_param_group({"params": [later], "lr": 1.0})
    for _ in range(5):
        optimizer.zero_grad()
        add_gradients((first, _mine()), (later, 2.0))
        optimizer.step()
        assert gradient_of(first) == [sum_of_ranks()] * 3
        assert gradient_of(later) == [2.0 * hvd.size()] * 3


def check_unused_ones_keep_what_they_have() -> None:
    (used, unused, mine), optimizer = _pooled(3)
    unused.grad = torch.full((3,), 4.0)  # reduced once, as a gradient of this step
    for _ in range(3):
        used.grad = mine.grad = None
        add_gradients((used, _mine()))
        if hvd.rank() == 0:
            add_gradients((mine, 3.0))
        optimizer.step()
        assert gradient_of(used) == [sum_of_ranks()] * 3
        assert gradient_of(unused) == [4.0 * hvd.size()] * 3
        assert gradient_of(mine) == [3.0] * 3


def _model() -> nn.Module:
    torch.manual_seed(5)
    model: nn.Module = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3),
        nn.Flatten(),
        nn.Linear(8 * 4 * 4, 5),
    ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def _train(steps: int, pool: bool, **arguments: Any) -> list[torch.Tensor]:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    # A group for each: never in a pool.
    groups = None if pool else [[parameter] for parameter in model.parameters()]
    hvd.DistributedOptimizer(optimizer, groups=groups, **arguments)
    generator = torch.Generator("cpu").manual_seed(hvd.rank())
    device = torch.get_default_device()
    for step in range(steps):
        optimizer.zero_grad(set_to_none=step % 3 != 0)
        batch = torch.randn(4, 3, 8, 8, generator=generator, device="cpu").to(device)
        model(batch).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    if hvd.size() > 1:
        assert (_buckets(optimizer) > 0) is pool
        for parameter in model.parameters():
            assert parameter.grad is not None
            assert parameter.grad.stride() == parameter.stride()
    return [parameter.detach().clone() for parameter in model.parameters()]


def check_the_same_bits_as_without_a_pool() -> None:
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        for op, factor in ((hvd.Average, 1.0), (hvd.Average, 2.0), (hvd.Max, 1.0)):
            arguments = {"compression": compression, "op": op, "gradient_predivide_factor": factor}
            with_pool, without = (_train(6, pool, **arguments) for pool in (True, False))
            assert all(map(torch.equal, with_pool, without)), arguments


def check_the_work_of_a_step() -> None:
    """Counted, not timed: an operation a bucket, no packing, few messages."""
    parameters, optimizer = _pooled(20)

    def take_steps(number: int) -> None:
        for _ in range(number):
            optimizer.zero_grad()
            add_gradients(*((parameter, 1.0) for parameter in parameters))
            optimizer.step()

    if hvd.size() == 1:
        return
    take_steps(2)  # until all requests are in the response cache
    hvd.barrier()
    before = hvd.stats()
    steps = 10
    take_steps(steps)
    work = {name: value - before[name] for name, value in hvd.stats().items()}
    buckets = _buckets(optimizer)
    assert work["operations"] == work["tensors"] == steps * buckets
    assert work["fused_tensors"] == 0
    assert work["full_requests"] == 0
    # A tensor is in one order to each rank, or in one report. On a busy machine a wait may begin after its
    # tensor's report has gone: the flush is then a message, too. A pause of a second ends the schedule lock,
    # in two orders to each rank, or one report.
    ends, of_a_tensor = work["schedule_unlocks"], hvd.size() - 1 if hvd.rank() == 0 else 2
    assert work["messages_sent"] <= (steps * (buckets + 1) + 2 * ends) * of_a_tensor, work


def check_layers_in_turn_send_no_request_in_full() -> None:
    """A bucket has all of its gradients in every second step, and in the others the first half of them."""
    parameters, optimizer = _pooled(6)

    def take_steps(number: int) -> None:
        for step in range(number):
            optimizer.zero_grad()
            add_gradients(*((parameter, 1.0) for parameter in parameters[: 6 if step % 2 == 0 else 3]))
            optimizer.step()
            assert gradient_of(parameters[0]) == [float(hvd.size())] * 3
            assert parameters[5].grad is None or step % 2 == 0

    take_steps(4)  # until all requests are in the response cache
    hvd.barrier()
    before = hvd.stats()["full_requests"]
    take_steps(10)
    assert hvd.stats()["full_requests"] == before


def check_several_dtypes() -> None:
    parameters = [
        nn.Parameter(torch.zeros(5, dtype=d)) for d in (torch.float32, torch.float64, torch.bfloat16)
    ]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), op=hvd.Sum)
    for _ in range(5):
        optimizer.zero_grad()
        for parameter in parameters:
            (parameter * _mine()).sum().backward()
        optimizer.step()
        for parameter in parameters:
            assert gradient_of(parameter) == [sum_of_ranks()] * 5
    assert _buckets(optimizer) == (3 if hvd.size() > 1 else 0)


def check_double_backward_keeps_its_graph() -> None:
    (parameter,), optimizer = _pooled(1)
    parameter.data.fill_(2.0)
    (parameter**3).sum().backward(create_graph=True)
    assert parameter.grad is not None
    assert parameter.grad.requires_grad
    optimizer.step()
    optimizer.zero_grad()


def check_no_pool_while_a_rank_has_joined() -> None:
    """Its memory is needed; afterwards it takes part in everything, the pool too."""
    parameters = make_parameters(2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), op=hvd.Sum)
    with join_context(optimizer):
        for _ in range(1 if hvd.rank() == hvd.size() - 1 else 5):
            optimizer.zero_grad()
            add_gradients(*((parameter, 1.0) for parameter in parameters))
            optimizer.step()
    assert _buckets(optimizer) == 0
    use_pool(optimizer)
    with join_context(optimizer):
        for _ in range(hvd.rank() + 1):
            optimizer.zero_grad()
            add_gradients(*((parameter, 1.0) for parameter in parameters))
            optimizer.step()
    assert gradient_of(parameters[0]) == [1.0 * (hvd.size() - hvd.rank())] * 3


def check_a_new_job_makes_a_new_pool() -> None:
    """Last, as it starts a new job."""
    (first, second), optimizer = _pooled(2)
    add_gradients((first, _mine()), (second, 1.0))
    optimizer.step()
    hvd.shutdown()
    hvd.init()
    for number in range(6):
        if number != 3:
            optimizer.zero_grad()
        else:
            optimizer.zero_grad(set_to_none=False)
        add_gradients((first, _mine()), (second, 1.0))
        optimizer.step()
        assert gradient_of(first) == [sum_of_ranks()] * 3
    if hvd.size() > 1:
        assert _buckets(optimizer) > 0


def check_a_pool_of_the_job_before_is_an_error_on_all_ranks() -> None:
    """After the last, as it starts a new job."""
    pool = _core.GradientPool(1 << 20, 64, 0, torch.device("cpu"))
    hvd.shutdown()
    hvd.init()
    why = "this gradient pool was made before the last init()"
    if hvd.rank() == 0:
        with pytest.raises(ValueError, match=re.escape(why)):
            pool.allreduce_async(64, torch.float32, "stale", hvd.Sum)
    else:
        with pytest.raises(hvd.HorovodInternalError, match=re.escape(why)):
            hvd.allreduce(torch.ones(16), name="stale", op=hvd.Sum)
