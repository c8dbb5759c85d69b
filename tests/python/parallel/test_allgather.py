"""allgather: extents that differ between ranks, every form, every dtype, and its errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check

anything: Any = hvd  # for calls that a type checker refuses

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_allgather(np: int, check: Check) -> None:
    run_check(check, np)


def part(rank: int, rows: int, *rest: int) -> torch.Tensor:
    return torch.full((rows, *rest), float(rank + 1))


def check_every_dtype_with_rows_by_rank() -> None:
    for dtype in DTYPES:
        for rest in [(), (3,), (2, 2)]:
            result = hvd.allgather(part(hvd.rank(), hvd.rank() + 1, *rest).to(dtype))
            expected = torch.cat([part(rank, rank + 1, *rest) for rank in range(hvd.size())]).to(dtype)
            assert result.dtype == dtype
            assert torch.equal(result, expected), (dtype, rest)


def check_ranks_without_rows() -> None:
    last = hvd.size() - 1
    result = hvd.allgather(part(hvd.rank(), 2 if hvd.rank() == last else 0, 3))
    assert torch.equal(result, part(last, 2, 3))
    assert hvd.allgather(torch.empty(0, 3)).shape == (0, 3)
    assert hvd.allgather(torch.empty(2, 0)).shape == (2 * hvd.size(), 0)


def check_extents_that_change_under_one_name() -> None:
    for turn in range(6):
        rows = [(rank + turn) % 3 for rank in range(hvd.size())]
        result = hvd.allgather(part(hvd.rank(), rows[hvd.rank()]), name="varying")
        assert torch.equal(result, torch.cat([part(rank, count) for rank, count in enumerate(rows)]))


def check_strides() -> None:
    image = torch.arange(48.0).reshape(2, 3, 2, 4)
    for mine in (image.to(memory_format=torch.channels_last), image[..., ::2], image.transpose(0, 1)):
        expected = torch.cat([mine + rank for rank in range(hvd.size())])
        result = hvd.allgather(mine + hvd.rank())
        assert torch.equal(result, expected)
        assert result.is_contiguous()
    assert hvd.allgather(torch.ones(1).expand(3, 2)).tolist() == [[1, 1]] * (3 * hvd.size())


def check_async_in_different_orders() -> None:
    names = [f"gather.{index}" for index in range(20)]
    begin = hvd.rank() * 7
    handles = {}
    for name in names[begin % 20 :] + names[: begin % 20]:
        handles[name] = hvd.allgather_async(part(hvd.rank(), int(name[7:]) % 3), name=name)
    for name in reversed(names):
        rows = int(name[7:]) % 3
        expected = torch.cat([part(rank, rows) for rank in range(hvd.size())])
        assert torch.equal(hvd.synchronize(handles[name]), expected)


def check_grouped() -> None:
    tensors = [part(hvd.rank(), hvd.rank() + 1, 2), part(hvd.rank(), 1).int(), torch.empty(0, 3).bool()]
    for result in (
        hvd.grouped_allgather(tensors),
        hvd.grouped_allgather(tuple(tensors), name="group"),
        hvd.synchronize(hvd.grouped_allgather_async(tensors)),
    ):
        assert isinstance(result, list)
        assert torch.equal(result[0], torch.cat([part(rank, rank + 1, 2) for rank in range(hvd.size())]))
        assert result[1].tolist() == list(range(1, hvd.size() + 1))
        assert result[2].shape == (0, 3)
        assert [tensor.dtype for tensor in result] == [torch.float32, torch.int32, torch.bool]
    assert hvd.grouped_allgather([]) == []


def check_inference_tensors_and_modes() -> None:
    with torch.inference_mode():
        result = hvd.allgather(torch.ones(2))
    assert result.tolist() == [1.0] * (2 * hvd.size())
    result = hvd.synchronize(hvd.allgather_async(torch.ones(2, requires_grad=True)))
    assert not result.requires_grad
    result.requires_grad_()  # it is a normal tensor


def check_wrong_calls() -> None:
    for call in (
        lambda: hvd.allgather(torch.tensor(1.0)),
        lambda: anything.allgather([1.0]),
        lambda: hvd.allgather(torch.ones(2, device="meta")),
        lambda: hvd.grouped_allgather([torch.ones(2), torch.tensor(1.0)]),
        lambda: anything.grouped_allgather(iter([torch.ones(2)])),
    ):
        with pytest.raises(ValueError, match=r"[Tt]ensor"):
            call()  # type: ignore[no-untyped-call]
    assert hvd.allgather(torch.ones(1)).numel() == hvd.size()


@needs_ranks(2)
def check_disagreement() -> None:
    odd = hvd.rank() == hvd.size() - 1
    with pytest.raises(hvd.HorovodInternalError, match="columns"):
        hvd.allgather(torch.ones(2, 3 + odd), name="columns")
    with pytest.raises(hvd.HorovodInternalError, match="dtypes"):
        hvd.allgather(torch.ones(2).to(torch.int64 if odd else torch.float32), name="dtypes")
    with pytest.raises(hvd.HorovodInternalError, match="number"):
        hvd.grouped_allgather([torch.ones(2)] * (2 + odd), name="number")
    if odd:
        with pytest.raises(ValueError, match="dimensions"):
            hvd.allgather(torch.tensor(1.0), name="scalar")
    else:
        with pytest.raises(hvd.HorovodInternalError, match="dimensions"):
            hvd.allgather(torch.ones(1), name="scalar")
    assert hvd.allgather(torch.ones(1), name="scalar").numel() == hvd.size()
