"""Gradients that travel in a half type: one cast on the way in, one pass for a bucket's way back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from horovod_rules import expect_bits, reduced, values
from ranks import Check, needs_ranks, run_check
from roundelay import _core
from roundelay.errors import MismatchError
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from small_gradients import POOLED, WIRE, add_gradients, gradient_of, make_parameters, sum_of_ranks, use_pool
from technique_libraries import CYCLIC, NEGATE

HALVES = {hvd.Compression.fp16: torch.float16, hvd.Compression.bf16: torch.bfloat16}
SHAPES = ((1,), (5, 3), (20_000,), (4, 8, 5, 3))  # the third is too large for the copy of small ones
HERE = Path(__file__).parent


@pytest.mark.parametrize("np", [2, 3])
def test_half_wire(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.checks_of(
    *(HERE / f"test_{name}.py" for name in ("torch_optimizer", "gradient_hooks", "gradient_pool"))
)
def test_users_do_with_gradients_what_they_do_without(check: Check) -> None:
    """Without schedule lock: on a busy machine its ends are messages, which a check counts."""
    env = {WIRE: "bf16", POOLED: "1", "ROUNDELAY_SCHEDULE_LOCK": "0"}
    run_check(check, 2, env=env)


@contextlib.contextmanager
def _counting() -> Iterator[dict[str, int]]:
    before, work = hvd.stats(), dict[str, int]()
    yield work
    work.update((name, number - before[name]) for name, number in hvd.stats().items())


def _parameters() -> list[torch.nn.Parameter]:
    """Of fp32, one of fp64, and one whose strides are not those of its shape."""
    made = [torch.nn.Parameter(torch.ones(shape)) for shape in SHAPES]
    made.append(torch.nn.Parameter(torch.ones(300, dtype=torch.float64)))
    made[3].data = made[3].data.to(memory_format=torch.channels_last)
    return made


def _buckets(optimizer: torch.optim.Optimizer) -> int:
    wrapper = wrapper_of(optimizer)
    assert wrapper is not None
    return wrapper.buckets()


def _wrapped(parameters: Sequence[torch.nn.Parameter], **arguments: Any) -> torch.optim.SGD:
    return hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), **arguments)


def check_every_bit_is_horovods() -> None:
    """Cast, rounded, multiplied, rounded; with new tensors and with gradients added in place."""
    for compression, wire in HALVES.items():
        for op, factor in ((hvd.Average, 1.0), (hvd.Average, 3.0), (hvd.Sum, 1.0), (hvd.Max, 1.0)):
            parameters = _parameters()
            optimizer = _wrapped(parameters, compression=compression, op=op, gradient_predivide_factor=factor)
            for step in range(6):
                parts = [
                    [values(p.dtype, rank, *p.shape, seed=10 * step + i) for rank in range(hvd.size())]
                    for i, p in enumerate(parameters)
                ]
                optimizer.zero_grad(set_to_none=step % 2 == 0)
                own = [part[hvd.rank()].to(torch.get_default_device()) for part in parts]
                torch.stack(
                    [(p * g).sum().double() for p, g in zip(parameters, own, strict=True)]
                ).sum().backward()
                for parameter, part in zip(parameters, parts, strict=True):
                    assert parameter.grad is not None
                    assert parameter.grad.stride() == parameter.stride()
                    sent = [one.to(wire) for one in part]
                    right = reduced(sent, op, 1 / factor, factor).to(parameter.dtype)
                    alone = part[0]
                    expect_bits(parameter.grad, right if hvd.size() > 1 else alone, f"{wire} {op} {step}")
                optimizer.step()
            assert _buckets(optimizer) == (2 if hvd.size() > 1 else 0)  # of fp32 and of fp64


@needs_ranks(2)
def check_each_gradient_is_cast_once() -> None:
    """Counted: a cast for each gradient in, a pass for each bucket out, in operations of buckets alone."""
    for set_to_none in (True, False):
        parameters = _parameters()
        optimizer = _wrapped(parameters, compression=hvd.Compression.bf16)
        use_pool(optimizer)
        steps, buckets = 4, _buckets(optimizer)
        with _counting() as work:
            for _ in range(steps):
                optimizer.zero_grad(set_to_none=set_to_none)
                torch.stack([p.sum().double() for p in parameters]).sum().backward()
                optimizer.step()
        assert work["gradients_copied"] == steps * len(parameters)
        assert work["buckets_cast_back"] == steps * buckets
        assert work["operations"] == steps * buckets
        assert work["gradients_moved_out"] == 0


def check_what_changes_after_its_cast_is_cast_again() -> None:
    """A hook of a later gradient changes one that has arrived, in place or by another one."""
    first, second, third = make_parameters(3)
    active = False
    optimizer = _wrapped([first, second, third], op=hvd.Sum, compression=hvd.Compression.bf16)

    def change(_: torch.Tensor) -> None:
        if active and third.grad is not None and second.grad is not None:
            third.grad.mul_(2)
            second.grad = second.grad * 4

    first.register_post_accumulate_grad_hook(change)  # the bucket's last gradient
    use_pool(optimizer)
    active = True
    for _ in range(2):
        with _counting() as work:
            optimizer.zero_grad()
            add_gradients((first, 1.0), (second, 1.0), (third, 1.0))
            optimizer.step()
        assert [gradient_of(one)[0] for one in (first, second, third)] == [
            factor * hvd.size() for factor in (1, 4, 2)
        ]
        assert work["gradients_copied"] == (3 + 2 if hvd.size() > 1 else 0)


def check_a_result_is_an_entry_of_the_second_memory() -> None:
    first, second = make_parameters(2)
    optimizer = _wrapped([first, second], op=hvd.Sum, compression=hvd.Compression.fp16)
    use_pool(optimizer)
    add_gradients((first, hvd.rank() + 1.0), (second, 1.0))
    gradient = first.grad
    assert gradient is not None
    assert gradient.dtype == torch.float32
    assert gradient.untyped_storage().nbytes() == 3 * 4
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    add_gradients((first, hvd.rank() + 1.0), (second, 1.0))
    assert first.grad is gradient
    assert gradient_of(first) == [sum_of_ranks()] * 3


def check_unused_layers_and_sparse_gradients() -> None:
    embedding = torch.nn.Embedding(6, 2, sparse=True)
    used, unused = make_parameters(2)
    optimizer = _wrapped(
        [*embedding.parameters(), used, unused],
        op=hvd.Sum,
        compression=hvd.Compression.bf16,
        sparse_as_dense=True,
    )
    for step in range(6):
        optimizer.zero_grad()
        loss = embedding(torch.tensor([hvd.rank(), 5])).sum() + used.sum()
        if step < 3 or hvd.rank() == 0:
            loss = loss + unused.sum()
        loss.backward()
        optimizer.synchronize()  # type: ignore[attr-defined]
        gradient = embedding.weight.grad
        assert gradient is not None
        assert gradient.is_sparse
        right = torch.zeros(6, 2)
        right[: hvd.size()] += 1
        right[5] += hvd.size()
        assert torch.equal(gradient.to_dense(), right)
        assert gradient_of(unused) == [float(hvd.size() if step < 3 else 1)] * 3
        optimizer.step()


def check_overflow_in_the_half_type_is_seen_by_all() -> None:
    """A gradient that fp16 cannot hold, on one rank alone: no rank takes the step."""
    parameters = make_parameters(2)
    optimizer = _wrapped(parameters, op=hvd.Sum, compression=hvd.Compression.fp16)
    use_pool(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for value in (1.0, 1e5 if hvd.rank() == hvd.size() - 1 else 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale(torch.stack([(p * value).sum() for p in parameters]).sum()).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_value_(parameters, 1000.0)
        scaler.step(optimizer)
        scaler.update()
    skipped = 1 if hvd.size() > 1 else 0
    assert scaler.get_scale() == (2.0 if skipped else 4.0)
    if skipped:
        torch.testing.assert_close(parameters[0].data, torch.full((3,), -0.1 * 2 * hvd.size()))


def check_kept_results_move_out_of_the_second_memory() -> None:
    parameters = make_parameters(2)
    optimizer = _wrapped(parameters, op=hvd.Sum, compression=hvd.Compression.fp16)
    use_pool(optimizer)
    kept: list[torch.Tensor] = []
    with _counting() as work:
        for value in (1.0, 2.0):
            add_gradients(*((parameter, value) for parameter in parameters))
            optimizer.step()
            kept += [parameter.grad for parameter in parameters if parameter.grad is not None]
            optimizer.zero_grad()
    assert [one.tolist() for one in kept] == [[value * hvd.size()] * 3 for value in (1, 1, 2, 2)]
    assert work["gradients_moved_out"] == (2 if hvd.size() > 1 else 0)


def check_a_refused_submission_keeps_the_contributions() -> None:
    size, padded = 33, 64
    parameter = torch.nn.Parameter(torch.zeros(size))
    results = (torch.float32, 4 * padded)
    pool = _core.GradientPool(200, 2 * padded, 0, parameter.device, results)
    hvd.barrier()  # all ranks have made their parts
    bucket = _core.Bucket("refused", pool, _core.Rule(op=99))
    bucket.add(_core.Gradient(parameter, "refused", True), pool.add(0, parameter, torch.bfloat16))
    parameter.grad = torch.full_like(parameter, 3.0)
    with pytest.raises(ValueError, match="op must be one of"):
        bucket.submit()
    assert gradient_of(parameter) == [3.0] * size
    assert pool.counters["buckets_cast_back"] == 0


def check_ranks_that_differ_keep_their_contributions() -> None:
    """As in a pool whose results have the type that travels, but for the one rounding."""
    size, padded = 33, 64
    parameter = torch.nn.Parameter(torch.zeros(size))
    pool = _core.GradientPool(201, 2 * padded, 0, parameter.device, (torch.float32, 4 * padded))
    hvd.barrier()  # all ranks have made their parts
    bucket = _core.Bucket("mismatch", pool, _core.Rule(op=hvd.Sum))
    bucket.add(_core.Gradient(parameter, "mismatch", True), pool.add(0, parameter, torch.bfloat16))
    parameter.grad = torch.ones_like(parameter)
    bucket.submit()
    bucket.finish()
    if hvd.size() == 1:
        return
    assert gradient_of(parameter) == [float(hvd.size())] * size
    bucket.set_technique(NEGATE if hvd.rank() == 0 else CYCLIC)
    own = values(torch.float32, hvd.rank(), size)
    bucket.new_step()
    parameter.grad = own.clone()
    bucket.submit()
    with pytest.raises(MismatchError, match="negate"):
        bucket.finish()
    bucket.abandon()
    assert parameter.grad is not None
    assert torch.equal(parameter.grad, own.to(torch.bfloat16).to(torch.float32))
    assert pool.counters["buckets_cast_back"] == 1


def check_an_entry_that_is_refused_leaves_no_trace() -> None:
    """The second memory has room for it, the first has not."""
    size = 32
    parameter = torch.nn.Parameter(torch.zeros(size))
    pool = _core.GradientPool(202, 2 * size, 0, parameter.device, (torch.float32, 8 * size))
    hvd.barrier()  # all ranks have made their parts
    with pytest.raises(ValueError, match="within its gradient pool"):
        pool.add(2 * size, parameter, torch.bfloat16)
    bucket = _core.Bucket("entry", pool, _core.Rule(op=hvd.Sum))
    bucket.add(_core.Gradient(parameter, "entry", True), pool.add(0, parameter, torch.bfloat16))
    parameter.grad = torch.ones_like(parameter)
    bucket.submit()
    bucket.finish()
    assert gradient_of(parameter) == [float(hvd.size())] * size
