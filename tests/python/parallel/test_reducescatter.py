"""reducescatter: uneven first dimensions, scale factors, every form, and its errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check

anything: Any = hvd  # for calls that a type checker refuses

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_reducescatter(np: int, check: Check) -> None:
    run_check(check, np)


def mine_of(whole: torch.Tensor) -> torch.Tensor:
    """This rank's rows: the first ranks have one more."""
    least, more = divmod(whole.shape[0], hvd.size())
    begin = hvd.rank() * least + min(hvd.rank(), more)
    return whole[begin : begin + least + (hvd.rank() < more)]


def whole(rows: int, *rest: int) -> torch.Tensor:
    return torch.arange(float(rows * int(torch.tensor(rest).prod()))).reshape(rows, *rest) % 7


def check_sum_and_average_of_every_dtype() -> None:
    for dtype in FLOATS + INTEGERS:
        for shape in [(1,), (hvd.size(),), (2 * hvd.size() + 1, 3), (5, 2, 2), (0,), (3, 0)]:
            x = whole(*shape).to(dtype)
            total = hvd.reducescatter(x, op=hvd.Sum)
            assert total.dtype == dtype
            assert torch.equal(total, mine_of(x * hvd.size())), (dtype, shape)
            assert torch.equal(hvd.reducescatter(x), mine_of(x)), (dtype, shape)


def check_different_inputs() -> None:
    x = whole(9, 2)
    result = hvd.reducescatter(x * (hvd.rank() + 1), op=hvd.Sum)
    assert torch.equal(result, mine_of(x * sum(range(1, hvd.size() + 1))))


def check_average_of_equal_values_is_the_value() -> None:
    for dtype in FLOATS:
        x = torch.tensor([0.1, 1.0 / 3.0, 1e-3, 7e3, 0.7]).to(dtype)
        assert torch.equal(hvd.reducescatter(x), mine_of(x)), dtype


def check_scale_factors() -> None:
    x = whole(6)
    result = hvd.reducescatter(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert torch.equal(result, mine_of(x * 2 * hvd.size()))
    result = hvd.reducescatter(x, None, hvd.Compression.none, hvd.Sum, hvd.global_process_set, 0.5, 4.0)
    assert torch.equal(result, mine_of(x * 2 * hvd.size()))


def check_strides_and_inputs_stay() -> None:
    image = torch.arange(60.0).reshape(5, 3, 2, 2)
    for x in (image.to(memory_format=torch.channels_last), image.transpose(0, 1), image[::2]):
        before = x.clone()
        assert torch.equal(hvd.reducescatter(x, op=hvd.Sum), mine_of(before * hvd.size()))
        assert torch.equal(x, before)


def check_async_grouped_and_compression() -> None:
    x, y = whole(7, 2), whole(hvd.size()).to(torch.int64)
    assert torch.equal(hvd.synchronize(hvd.reducescatter_async(x, "one", hvd.Sum)), mine_of(x * hvd.size()))
    for result in (
        hvd.grouped_reducescatter([x, y], op=hvd.Sum),
        hvd.synchronize(hvd.grouped_reducescatter_async((x, y), name="group", op=hvd.Sum)),
    ):
        assert isinstance(result, list)
        assert torch.equal(result[0], mine_of(x * hvd.size()))
        assert torch.equal(result[1], mine_of(y * hvd.size()))
    assert hvd.grouped_reducescatter([]) == []
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        result = hvd.reducescatter(x, compression=compression)
        assert result.dtype == torch.float32
        assert torch.equal(result, mine_of(x))
        assert torch.equal(hvd.grouped_reducescatter([x], compression=compression)[0], mine_of(x))


def check_wrong_calls() -> None:
    x = torch.ones(4)
    for call in (
        lambda: hvd.reducescatter(torch.tensor(1.0)),
        lambda: hvd.reducescatter(x, op=hvd.Max),
        lambda: hvd.reducescatter(x, op=hvd.Adasum),
        lambda: hvd.reducescatter(x.bool()),
        lambda: hvd.reducescatter(x, postscale_factor=float("inf")),
        lambda: anything.reducescatter(x, compression=3),
        lambda: anything.grouped_reducescatter(x),
    ):
        with pytest.raises(ValueError, match=r"reducescatter"):
            call()  # type: ignore[no-untyped-call]
    assert hvd.reducescatter(x).tolist() == mine_of(x).tolist()


@needs_ranks(2)
def check_disagreement() -> None:
    odd = hvd.rank() == hvd.size() - 1
    with pytest.raises(hvd.HorovodInternalError, match="extent"):
        hvd.reducescatter(torch.ones(4 + odd), name="extent")
    with pytest.raises(hvd.HorovodInternalError, match="operator"):
        hvd.reducescatter(torch.ones(4), op=hvd.Sum if odd else hvd.Average, name="operator")
    assert torch.equal(hvd.reducescatter(torch.ones(4), name="extent"), mine_of(torch.ones(4)))
