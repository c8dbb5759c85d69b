"""allreduce, broadcast and barrier on several ranks: every result is exact."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay.errors import MismatchError

anything: Any = hvd  # for calls that a type checker refuses

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_operations(np: int, check: Check) -> None:
    run_check(check, np)


def check_sum_of_every_dtype_and_shape() -> None:
    for dtype in FLOATS + INTEGERS:
        for shape in [(), (1,), (17,), (3, 5), (2, 3, 4), (0,), (1000,)]:
            mine = torch.full(shape, hvd.rank() + 1).to(dtype)
            result = hvd.allreduce(mine, op=hvd.Sum)
            expected = torch.full(shape, sum(range(1, hvd.size() + 1))).to(dtype)
            assert result.dtype == dtype
            assert torch.equal(result, expected), (dtype, shape, result)
            assert torch.equal(mine, torch.full(shape, hvd.rank() + 1).to(dtype)), "the input was changed"


def check_min_max_product() -> None:
    for dtype in FLOATS + INTEGERS:
        mine = torch.tensor([hvd.rank() + 1, hvd.size() - hvd.rank()]).to(dtype)
        product = torch.tensor(range(1, hvd.size() + 1)).prod().item()
        for op, expected in [(hvd.Min, [1, 1]), (hvd.Max, [hvd.size()] * 2), (hvd.Product, [product] * 2)]:
            assert hvd.allreduce(mine, op=op).tolist() == expected, (dtype, op)


def check_average_of_equal_values_is_the_value() -> None:
    value = torch.tensor([0.1, 1.0 / 3.0, 1e-30])
    assert torch.equal(hvd.allreduce(value), value)


def check_scale_factors() -> None:
    mine = torch.full((4,), 2.0)
    result = hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert result.tolist() == [4.0 * hvd.size()] * 4


def check_in_place_and_strides() -> None:
    ranks = torch.arange(hvd.size()).sum().item()
    contiguous = torch.full((6,), float(hvd.rank()))
    assert hvd.allreduce_(contiguous, op=hvd.Sum) is contiguous
    assert contiguous.tolist() == [ranks] * 6
    base = torch.arange(24.0).reshape(2, 3, 2, 2)
    for strided in [
        base.clone().to(memory_format=torch.channels_last),
        base.clone().transpose(0, 1),
        torch.arange(48.0).reshape(2, 3, 2, 4)[..., ::2],
        torch.arange(8.0).as_strided((2, 3), (3, 2)),  # interleaved, but each element has a place of its own
    ]:
        expected = strided.clone() * hvd.size()
        assert hvd.allreduce_(strided, op=hvd.Sum) is strided
        assert torch.equal(strided, expected)
    sliced = torch.arange(10.0)
    hvd.allreduce_(sliced[2:4], op=hvd.Sum)
    assert sliced.tolist() == [0, 1, 2.0 * hvd.size(), 3.0 * hvd.size(), *range(4, 10)]


def check_many_at_once_in_different_orders() -> None:
    tensors = {f"order.{index}": torch.full((index + 1,), float(index + hvd.rank())) for index in range(40)}
    names = list(tensors)
    names = names[hvd.rank() * 7 % 40 :] + names[: hvd.rank() * 7 % 40]
    handles = {name: hvd.allreduce_async(tensors[name], name=name, op=hvd.Sum) for name in names}
    for name in reversed(names):
        index = int(name.split(".")[1])
        result = hvd.synchronize(handles[name])
        assert result is not None
        assert result.tolist() == [sum(index + rank for rank in range(hvd.size()))] * (index + 1)


def check_adasum() -> None:
    """Equal vectors give that vector, orthogonal ones their sum."""
    same = torch.tensor([3.0, 4.0])
    assert torch.equal(hvd.allreduce(same, op=hvd.Adasum), same)
    mine = torch.zeros(hvd.size())
    mine[hvd.rank()] = 2.0
    assert hvd.allreduce(mine, op=hvd.Adasum).tolist() == [2.0] * hvd.size()


def check_poll_and_unknown_handles() -> None:
    handle = hvd.allreduce_async(torch.ones(3), name="polled")
    while not hvd.poll(handle):
        pass
    assert hvd.synchronize(handle) is not None
    for unknown in (handle, -1, "handle"):
        for function in (anything.synchronize, anything.poll):
            with pytest.raises(ValueError, match=str(unknown)):
                function(unknown)


def check_compression() -> None:
    mine = torch.full((5,), 1.0 + hvd.rank())
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        result = hvd.allreduce(mine, op=hvd.Sum, compression=compression)
        assert result.dtype == torch.float32
        assert result.tolist() == [sum(range(1, hvd.size() + 1))] * 5


def check_broadcast_from_every_root() -> None:
    for root in range(hvd.size()):
        for dtype in [*FLOATS, *INTEGERS, torch.bool]:
            mine = torch.full((3, 2), hvd.rank() + 1).to(dtype)
            expected = torch.full((3, 2), root + 1).to(dtype)
            assert torch.equal(hvd.broadcast(mine, root), expected)
            assert torch.equal(mine, torch.full((3, 2), hvd.rank() + 1).to(dtype))
            assert hvd.broadcast_(mine, root) is mine
            assert torch.equal(mine, expected)


def check_autograd_notices_what_is_changed_in_place() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    hvd.allreduce_(y, op=hvd.Sum)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def check_wrong_calls_raise_and_the_job_goes_on() -> None:
    x = torch.ones(3)
    for call in (
        lambda: hvd.allreduce(x, op=17),
        lambda: hvd.allreduce(x, average=True, op=hvd.Sum),
        lambda: hvd.allreduce(x.to_sparse()),
        lambda: hvd.broadcast(x, hvd.size()),
        lambda: hvd.broadcast(x, -1),
        lambda: hvd.allreduce(torch.ones(3, device="meta")),
        lambda: hvd.allreduce(x.int(), op=hvd.Adasum),
        lambda: hvd.allreduce(x.bool()),
        lambda: hvd.allreduce(x, prescale_factor=float("nan")),
        lambda: anything.allreduce(x, compression=None),
        lambda: anything.allreduce(x, name=7),
        lambda: anything.allreduce(x, process_set=0),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            call()  # type: ignore[no-untyped-call]
    with pytest.warns(DeprecationWarning, match="average"):
        assert hvd.allreduce(x, average=False).tolist() == [hvd.size()] * 3
    assert hvd.allreduce(x).tolist() == [1.0] * 3


def check_the_deprecation_points_at_the_callers_line() -> None:
    for name in ("allreduce", "allreduce_", "allreduce_async", "grouped_allreduce"):
        x: Any = [torch.ones(2)] if "grouped" in name else torch.ones(2)
        with pytest.warns(DeprecationWarning, match="average") as caught:
            getattr(hvd, name)(x, True)
        assert [warning.filename for warning in caught] == [__file__]


@needs_ranks(2)
def check_a_wrong_call_on_one_rank_is_an_error_on_all() -> None:
    last = hvd.size() - 1
    x = torch.ones(3)
    if hvd.rank() == last:
        with pytest.raises(ValueError, match="sparse"):
            hvd.allreduce(x.to_sparse(), name="one.sided")
    else:
        with pytest.raises(RuntimeError, match="dense"):
            hvd.allreduce(x, name="one.sided")
    hvd.barrier()
    assert hvd.allreduce(x, name="one.sided", op=hvd.Sum).tolist() == [hvd.size()] * 3


@needs_ranks(2)
def check_disagreement_is_an_error_on_all_ranks() -> None:
    different = torch.ones(3 + (hvd.rank() == 0))
    with pytest.raises(MismatchError, match=r"disagree.shape"):
        hvd.allreduce(different, name="disagree.shape")
    dtype = torch.float32 if hvd.rank() == 0 else torch.float64
    with pytest.raises(MismatchError, match=r"disagree.dtype"):
        hvd.allreduce(torch.ones(3, dtype=dtype), name="disagree.dtype")
    with pytest.raises(MismatchError, match=r"disagree.root"):
        hvd.broadcast(torch.ones(3), root_rank=min(hvd.rank(), 1), name="disagree.root")
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


def check_shutdown_and_init_again() -> None:
    hvd.barrier()
    hvd.shutdown()
    assert not hvd.is_initialized()
    with pytest.raises(hvd.HorovodInternalError, match="init"):
        hvd.allreduce(torch.ones(1))
    hvd.init()
    hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
