"""Grouped allreduce: one handle, all or nothing, whatever is in the group."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check

anything: Any = hvd  # for calls that a type checker refuses


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_grouped(np: int, check: Check) -> None:
    run_check(check, np)


def group(factor: int = 1) -> list[torch.Tensor]:
    """Of different dtypes, shapes and strides."""
    return [
        torch.full((3,), 2.0) * factor,
        torch.arange(6).reshape(2, 3) * factor,
        torch.tensor(5.0, dtype=torch.float64) * factor,
        torch.empty(0, 2),
        (torch.arange(12.0).reshape(3, 4) * factor).t(),
        torch.ones(2, dtype=torch.bfloat16) * factor,
    ]


def expect(result: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert isinstance(result, list)
    assert len(result) == len(expected)
    for one, other in zip(result, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def check_every_form() -> None:
    total = group(hvd.size())
    expect(hvd.grouped_allreduce(group(), op=hvd.Sum), total)
    expect(hvd.grouped_allreduce(tuple(group()), name="named", op=hvd.Sum), total)
    expect(hvd.synchronize(hvd.grouped_allreduce_async(group(), op=hvd.Sum)), total)
    for change in (
        lambda tensors: hvd.grouped_allreduce_(tensors, op=hvd.Sum),
        lambda tensors: hvd.synchronize(hvd.grouped_allreduce_async_(tensors, op=hvd.Sum)),
    ):
        tensors = group()
        result = change(tensors)
        expect(result, total)
        assert all(one is other for one, other in zip(result, tensors, strict=True))
    expect(hvd.grouped_allreduce(group()), group())
    floats = [tensor for tensor in group() if tensor.dtype == torch.float32]
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        expect(hvd.grouped_allreduce(floats, compression=compression), floats)
    scaled = hvd.grouped_allreduce(group(), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    expect(scaled[:1], group(2 * hvd.size())[:1])
    for op in (hvd.Min, hvd.Max):
        expect(hvd.grouped_allreduce(group(), op=op), group())


def check_groups_without_tensors() -> None:
    assert hvd.grouped_allreduce([]) == []
    assert hvd.grouped_allreduce_([]) == []
    for start in (hvd.grouped_allreduce_async, hvd.grouped_allgather_async, hvd.grouped_reducescatter_async):
        handle = start([])
        assert isinstance(handle, int)
        assert hvd.synchronize(handle) == []
        with pytest.raises(ValueError, match=str(handle)):
            hvd.synchronize(handle)


def check_many_groups_in_different_orders() -> None:
    names = [f"group.{index}" for index in range(12)]
    begin = 5 * hvd.rank() % 12
    handles = {
        name: hvd.grouped_allreduce_async(
            [torch.full((4,), float(name[6:])), torch.ones(300)], name=name, op=hvd.Sum
        )
        for name in names[begin:] + names[:begin]
    }
    for name in reversed(names):
        first, second = hvd.synchronize(handles[name])
        assert first.tolist() == [float(name[6:]) * hvd.size()] * 4
        assert second.tolist() == [hvd.size()] * 300


def check_large_members() -> None:
    tensors = [torch.full((size,), 1.0) for size in (1 << 20, 3, 1 << 18, 100_003)]
    for one in hvd.grouped_allreduce(tensors, op=hvd.Sum):
        assert bool((one == hvd.size()).all())


def check_wrong_calls() -> None:
    x = torch.ones(2)
    for call in (
        lambda: anything.grouped_allreduce(x),
        lambda: anything.grouped_allreduce(iter([x])),
        lambda: anything.grouped_allreduce([x, None]),
        lambda: hvd.grouped_allreduce([x, x.bool()]),
        lambda: hvd.grouped_allreduce([x, x.to_sparse()], name="sparse.member"),
        lambda: hvd.grouped_allreduce_([x, x]),
        lambda: hvd.grouped_allreduce([x], op=99),
        lambda: hvd.grouped_allreduce([x, x.int()], op=hvd.Adasum),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            call()  # type: ignore[no-untyped-call]
    expect(hvd.grouped_allreduce([x]), [x])


@needs_ranks(2)
def check_a_name_in_flight_is_refused() -> None:
    """The call raises and touches nothing, the first operation completes, the peers' second use fails too."""
    if hvd.rank() == 0:  # in flight: the others submit theirs after the barrier
        first = hvd.allreduce_async(torch.ones(2), name="taken", op=hvd.Sum)
        tensors = [torch.ones(3), torch.ones(4)]
        with pytest.raises(ValueError, match="'taken'"):
            hvd.grouped_allreduce_async_(tensors, name="taken", op=hvd.Sum)
        assert [tensor.sum().item() for tensor in tensors] == [3, 4]
    hvd.barrier()
    if hvd.rank() > 0:
        first = hvd.allreduce_async(torch.ones(2), name="taken", op=hvd.Sum)
    assert hvd.synchronize(first).tolist() == [hvd.size()] * 2
    if hvd.rank() > 0:
        with pytest.raises(hvd.HorovodInternalError, match="rank 0: .*'taken'"):
            hvd.grouped_allreduce([torch.ones(3), torch.ones(4)], name="taken", op=hvd.Sum)
    expect(hvd.grouped_allreduce([torch.ones(3)], name="taken"), [torch.ones(3)])


@needs_ranks(2)
def check_disagreement_reduces_nothing() -> None:
    odd = hvd.rank() == hvd.size() - 1
    tensors = [torch.ones(3), torch.ones(4 + odd)]
    with pytest.raises(hvd.HorovodInternalError, match="members"):
        hvd.grouped_allreduce_(tensors, name="members", op=hvd.Sum)
    assert tensors[0].tolist() == [1, 1, 1], "all or nothing"
    with pytest.raises(hvd.HorovodInternalError, match="count"):
        hvd.grouped_allreduce([torch.ones(3)] * (1 + odd), name="count")
    if odd:
        with pytest.raises(ValueError, match="sparse"):
            hvd.grouped_allreduce([torch.ones(3), torch.ones(3).to_sparse()], name="one.sided")
    else:
        with pytest.raises(hvd.HorovodInternalError, match="sparse"):
            hvd.grouped_allreduce([torch.ones(3), torch.ones(3)], name="one.sided")
    expect(hvd.grouped_allreduce([torch.ones(3)], name="members", op=hvd.Sum), [torch.ones(3) * hvd.size()])
