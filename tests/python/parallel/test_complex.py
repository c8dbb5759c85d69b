"""Complex tensors: every operation on their real views, with exact results; what cannot take them says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay.errors import HorovodInternalError, MismatchError

DTYPES = (torch.complex64, torch.complex128)


@pytest.mark.parametrize("np", [1, 2, 4])
def test_complex(np: int, check: Check) -> None:
    run_check(check, np)


def _values(*shape: int, rank: int | None = None, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    """A rank's tensor: the elements count from the rank times 8, and the imaginary parts go down."""
    count = torch.Size(shape).numel()
    real = torch.arange(count, dtype=torch.float64) + 8.0 * (hvd.rank() if rank is None else rank)
    return torch.complex(real, -2.0 * real - 1.0).reshape(shape).to(dtype)


def _sum(*shape: int, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    each = [_values(*shape, rank=rank, dtype=dtype) for rank in range(hvd.size())]
    return torch.stack(each).sum(0)


def _forms() -> Iterator[tuple[str, torch.Tensor]]:
    """Yields tensors of many layouts that have this rank's values."""
    for dtype in DTYPES:
        yield "contiguous", _values(3, 5, dtype=dtype)
        yield "no dimensions", _values(dtype=dtype)
        yield "empty", _values(0, 4, dtype=dtype)
        yield "transposed", _values(3, 5, dtype=dtype).t()
        yield "strided", _values(12, dtype=dtype)[::3]
        yield "channels last", _values(2, 3, 2, 4, dtype=dtype).to(memory_format=torch.channels_last)
        yield "lazy conjugate", _values(3, 5, dtype=dtype).conj()
        yield "strided conjugate", _values(12, dtype=dtype)[1::2].conj()
        yield "negative", torch._neg_view(_values(4, dtype=dtype))
        yield (
            "view of real memory",
            torch.view_as_complex(torch.view_as_real(_values(6, dtype=dtype)).clone()),
        )


def check_allreduce_of_every_form() -> None:
    for name, tensor in _forms():
        before = tensor.clone()
        every = hvd.allgather(before.reshape(1, *before.shape))  # the ranks' values
        for op, total in ((hvd.Sum, every.sum(0)), (hvd.Average, every.sum(0) / hvd.size())):
            result = hvd.allreduce(tensor, op=op)
            assert result.dtype == tensor.dtype, name
            assert torch.equal(result, total), (name, op, result)
            assert torch.equal(tensor, before), f"{name}: the input was changed"
        assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
        assert torch.equal(tensor, every.sum(0)), name


def check_allgather_is_what_the_ranks_have() -> None:
    """As the check above trusts it."""
    for dtype in DTYPES:
        rows = hvd.rank() + 1
        gathered = hvd.allgather(_values(rows, 3, dtype=dtype))
        each = [_values(rank + 1, 3, rank=rank, dtype=dtype) for rank in range(hvd.size())]
        assert gathered.dtype == dtype
        assert torch.equal(gathered, torch.cat(each))
        conjugates = hvd.synchronize(hvd.allgather_async(_values(rows, 3, dtype=dtype).conj()))
        assert torch.equal(conjugates, torch.cat(each).conj())
    one, two = hvd.grouped_allgather([_values(2), torch.full((1,), hvd.rank())])
    assert torch.equal(one, torch.cat([_values(2, rank=rank) for rank in range(hvd.size())]))
    assert two.tolist() == list(range(hvd.size()))
    assert hvd.allgather(_values(0, 3)).shape == (0, 3)


def check_factors_scale_both_parts() -> None:
    result = hvd.allreduce(_values(4), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert torch.equal(result, 2 * _sum(4))


def check_async_and_grouped() -> None:
    mine, copy = _values(5), _values(5)
    assert torch.equal(hvd.synchronize(hvd.allreduce_async(mine, op=hvd.Sum)), _sum(5))
    assert hvd.synchronize(hvd.allreduce_async_(copy, op=hvd.Sum)) is copy
    assert torch.equal(copy, _sum(5))
    group = [_values(3), torch.full((2,), float(hvd.rank())), _values(2, 2, dtype=torch.complex128).conj()]
    real = torch.full((2,), float(sum(range(hvd.size()))))
    expected = [_sum(3), real, _sum(2, 2, dtype=torch.complex128).conj()]
    for results in (
        hvd.grouped_allreduce(group, op=hvd.Sum),
        hvd.synchronize(hvd.grouped_allreduce_async(group, op=hvd.Sum)),
        hvd.grouped_allreduce_(group, op=hvd.Sum),
    ):
        assert all(map(torch.equal, results, expected))


def check_broadcast() -> None:
    root = hvd.size() - 1
    for dtype in DTYPES:
        for form in (lambda tensor: tensor, lambda tensor: tensor.conj(), lambda tensor: tensor.t()):
            mine, expected = form(_values(2, 3, dtype=dtype)), form(_values(2, 3, rank=root, dtype=dtype))
            assert torch.equal(hvd.broadcast(mine, root), expected)
            assert hvd.broadcast_(mine, root) is mine
            assert torch.equal(mine, expected)
    alone = _values()
    assert torch.equal(hvd.synchronize(hvd.broadcast_async_(alone, root)), _values(rank=root))


def check_alltoall() -> None:
    size, rank = hvd.size(), hvd.rank()
    rows = sum(range(1, size + 1))
    splits = list(range(1, size + 1))  # `n + 1` rows for rank n
    received, counts = hvd.alltoall(_values(rows, 2), splits)
    begin = sum(range(1, rank + 1))
    expected = [_values(rows, 2, rank=each)[begin : begin + rank + 1] for each in range(size)]
    assert torch.equal(received, torch.cat(expected))
    assert counts.tolist() == [rank + 1] * size
    assert hvd.alltoall(_values(size)).shape == (size,)


def check_reducescatter() -> None:
    size, rank = hvd.size(), hvd.rank()
    rows = 2 * size + 1
    own = [3 if each == 0 else 2 for each in range(size)]
    begin = sum(own[:rank])
    mine = slice(begin, begin + own[rank])
    scattered = hvd.reducescatter(_values(rows, 3), op=hvd.Sum)
    assert torch.equal(scattered, _sum(rows, 3)[mine])
    one, two = hvd.grouped_reducescatter([_values(rows), _values(rows).conj()], op=hvd.Average)
    assert torch.equal(one, _sum(rows)[mine] / size)
    assert torch.equal(two, (_sum(rows).conj() / size)[mine])


def check_sparse_average() -> None:
    sparse = torch.sparse_coo_tensor(
        torch.tensor([[1, hvd.rank() + 2]]), _values(2), (8,), check_invariants=False
    )
    reduced = hvd.sparse_allreduce_async(sparse, "sparse.complex", hvd.Average)()
    total = torch.stack(
        [
            torch.sparse_coo_tensor(torch.tensor([[1, rank + 2]]), _values(2, rank=rank), (8,)).to_dense()
            for rank in range(hvd.size())
        ]
    ).sum(0)
    assert torch.equal(reduced.to_dense(), total / hvd.size())


def _gradient(of: Callable[[torch.Tensor], torch.Tensor], *shape: int) -> torch.Tensor:
    """The gradient of the real part of the sum of the ranks' (rank + 1j) times the result."""
    tensor = _values(*shape).requires_grad_()
    result = of(tensor)
    (result * complex(hvd.rank() + 1, 1)).sum().real.backward()
    assert tensor.grad is not None
    return tensor.grad


def check_gradients() -> None:
    size = hvd.size()
    weights = sum(range(1, size + 1))  # torch's gradient is the conjugate of what multiplies
    total = torch.full((3,), complex(weights, -size), dtype=torch.complex64)
    own = torch.full((3,), complex(hvd.rank() + 1, -1), dtype=torch.complex64)
    assert torch.equal(_gradient(lambda one: hvd.allreduce(one, op=hvd.Sum), 3), total)
    assert torch.equal(
        _gradient(lambda one: hvd.grouped_allreduce([one], op=hvd.Average)[0], 3), total / size
    )
    assert torch.equal(_gradient(hvd.allgather, 3), total / size)
    assert torch.equal(
        _gradient(lambda one: hvd.broadcast(one, 0), 3), total / size if hvd.rank() == 0 else 0 * total
    )
    each = torch.complex(torch.arange(1.0, size + 1.0), -torch.ones(size))
    assert torch.equal(_gradient(hvd.alltoall, size), each)
    assert torch.equal(_gradient(lambda one: hvd.reducescatter(one, op=hvd.Sum), size), each * size)
    assert torch.equal(_gradient(lambda one: one, 3), own)


def _error(call: Callable[[], object], *kinds: type[Exception]) -> str:
    with pytest.raises(kinds) as caught:
        call()
    return str(caught.value)


def _expect_refused(bad: torch.Tensor, *parts: str, **arguments: Any) -> None:
    """A mistake of the last rank is a ValueError there, and an error with its text on the others."""
    last = hvd.rank() == hvd.size() - 1
    one = bad if last else torch.ones(2, 2)
    text = _error(
        lambda: hvd.allreduce(one, name="mine", **arguments), ValueError if last else HorovodInternalError
    )
    assert all(part in text for part in ("'mine'", *parts)), text
    text = _error(lambda: hvd.allreduce(bad, name="all", **arguments), ValueError, HorovodInternalError)
    assert all(part in text for part in ("'all'", *parts)), text
    assert torch.equal(hvd.allreduce(_values(2), name="mine", op=hvd.Sum), _sum(2))


def check_refusals() -> None:
    for op, word in ((hvd.Min, "Min"), (hvd.Max, "Max"), (hvd.Product, "Product"), (hvd.Adasum, "Adasum")):
        _expect_refused(_values(2), "complex", word, op=op)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        _expect_refused(_values(2), "complex64", "view_as_real", compression=compression)
        for operation in (hvd.grouped_allreduce, hvd.grouped_reducescatter):
            with pytest.raises(ValueError, match="complex64"):
                operation([_values(4)], compression=compression)
        with pytest.raises(ValueError, match="complex64"):
            hvd.reducescatter(_values(4), compression=compression)
    half = torch.view_as_complex(torch.ones(2, 2, dtype=torch.float16))
    _expect_refused(half, "complex32", "view_as_real")


@needs_ranks(2)
def check_other_shapes_and_types_are_mismatches() -> None:
    first = hvd.rank() == 0
    pairs: list[tuple[Any, Any]] = [
        (_values(3), _values(4)),
        (_values(3), _values(3, dtype=torch.complex128)),
        (_values(3), torch.ones(3)),
        (_values(), torch.ones(1)),
    ]
    for ours, theirs in pairs:
        with pytest.raises(MismatchError, match="other"):
            hvd.allreduce(ours if first else theirs, name="other")


def check_a_real_view_is_the_same() -> None:
    """What docs/migrating.md says: ranks may mix both."""
    mine = _values(3) if hvd.rank() == 0 else torch.view_as_real(_values(3))
    result = hvd.allreduce(mine, op=hvd.Sum)
    assert torch.equal(result if result.is_complex() else torch.view_as_complex(result), _sum(3))
