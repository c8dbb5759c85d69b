"""Each operation of torch.distributed over backend roundelay has the values that its definition says."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _make_nccl_premul_sum
from torch.distributed import ReduceOp

from process_groups import world
from ranks import Check, run_check, two_by_two

SIZES = (0, 1, 7, 1000, 70_001)
SUMMED = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8)
MOVED = (*SUMMED, torch.bool, torch.complex64, torch.uint16, torch.float8_e4m3fn)


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_one_node(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.parametrize("np", [3, 4])
def test_two_nodes(np: int, check: Check) -> None:
    run_check(check, np, each=two_by_two(), mpi=False)


def part(rank: int, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A rank's values, small enough that sums of four are exact in every type."""
    values = (torch.arange(count) * 7 + rank * 3) % 11
    return values.to(torch.float32).to(dtype) if dtype.is_complex or dtype.itemsize == 1 else values.to(dtype)


def parts(count: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [part(rank, count, dtype) for rank in range(dist.get_world_size())]


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if got.dtype == torch.float8_e4m3fn:
        got, want = got.view(torch.uint8), want.view(torch.uint8)
    assert torch.equal(got, want), (got, want)


def check_allreduce_sums() -> None:
    with world():
        for dtype in (*SUMMED, torch.complex64):
            for count in SIZES:
                tensor = part(dist.get_rank(), count, dtype)
                dist.all_reduce(tensor)
                same(tensor, torch.stack(parts(count, dtype)).sum(0).to(dtype))


def check_roots_outside_the_group_are_refused() -> None:
    with world():
        size = dist.get_world_size()
        for root in (size, size + 5, -1, 1_000_000):
            with pytest.raises(ValueError, match=f"root rank {root} is not in a group of {size}"):
                dist.reduce(torch.ones(1000), dst=root)
            with pytest.raises(ValueError, match=f"root rank {root} is not in a group of {size}"):
                dist.reduce(torch.ones(1000, dtype=torch.int32), dst=root, op=ReduceOp.BOR)


def check_allreduce_by_every_operator() -> None:
    folds: dict[ReduceOp.RedOpType, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        ReduceOp.MIN: torch.minimum,
        ReduceOp.MAX: torch.maximum,
        ReduceOp.PRODUCT: torch.mul,
        ReduceOp.BAND: torch.bitwise_and,
        ReduceOp.BOR: torch.bitwise_or,
        ReduceOp.BXOR: torch.bitwise_xor,
    }
    with world():
        for op, fold in folds.items():
            want, *others = parts(1000, torch.int32)
            for other in others:
                want = fold(want, other)
            tensor = part(dist.get_rank(), 1000, torch.int32)
            dist.all_reduce(tensor, op=op)
            same(tensor, want)
            reduced = part(dist.get_rank(), 1000, torch.int32)
            dist.reduce(reduced, dst=0, op=op)
            if dist.get_rank() == 0:
                same(reduced, want)


def check_results_in_inference_mode() -> None:
    with world(), torch.inference_mode():
        want, *others = parts(1000, torch.int32)
        for other in others:
            want = want | other
        for _ in range(3):
            tensor = part(dist.get_rank(), 1000, torch.int32)
            work = dist.all_reduce(tensor, op=ReduceOp.BOR, async_op=True)
            assert work is not None
            work.wait()
            same(tensor, want)
            rows = torch.ones(4, 5).t()  # not contiguous
            work = dist.all_reduce(rows, async_op=True)
            assert work is not None
            work.get_future().wait()
            same(rows, torch.full((5, 4), float(dist.get_world_size())))


def check_averages_and_scaled_sums() -> None:
    with world():
        size = dist.get_world_size()
        tensor = torch.full((1001,), float(dist.get_rank()))
        dist.all_reduce(tensor, op=ReduceOp.AVG)
        same(tensor, torch.full((1001,), (size - 1) / 2))
        tensor = torch.ones(1001)
        dist.all_reduce(tensor, op=_make_nccl_premul_sum(0.5))
        same(tensor, torch.full((1001,), 0.5 * size))


def check_each_rank_scales_its_own_part() -> None:
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        op, total = _make_nccl_premul_sum(float(rank + 1)), size * (size + 1) / 2
        for count in (1000, 100_000):
            for dtype in (torch.float32, torch.bfloat16, torch.complex64):
                tensor = torch.ones(count, dtype=dtype)
                dist.all_reduce(tensor, op=op)
                same(tensor, torch.full((count,), total, dtype=dtype))
            rows = torch.ones(4, count).t()  # not contiguous
            dist.all_reduce(rows, op=op)
            same(rows, torch.full((count, 4), total))
            given, mine = torch.ones(size * count), torch.zeros(count)
            dist.reduce_scatter_tensor(mine, given, op=op)
            same(mine, torch.full((count,), total))
            same(given, torch.ones(size * count))
            reduced = torch.ones(count)
            dist.reduce(reduced, dst=size - 1, op=op)
            same(reduced, torch.full((count,), total if rank == size - 1 else 1.0))


def check_sparse_tensors_of_other_types_are_refused() -> None:
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        values = torch.ones(4, dtype=torch.int32 if rank == size - 1 else torch.float32, device="cpu")
        indices = torch.arange(4, device="cpu").unsqueeze(0)  # the fake device has no sparse tensors
        tensor = torch.sparse_coo_tensor(indices, values, (9,), device="cpu")
        if size > 1:
            with pytest.raises(ValueError, match="has a sparse tensor of another shape or type"):
                dist.all_reduce(tensor)


def check_moves_of_every_type() -> None:
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        for dtype in MOVED:
            for count in SIZES:
                whole = parts(count, dtype)
                for root in {0, size - 1}:
                    tensor = part(rank, count, dtype)
                    dist.broadcast(tensor, root)
                    same(tensor, whole[root])
                gathered = [torch.zeros(count, dtype=dtype) for _ in range(size)]
                dist.all_gather(gathered, part(rank, count, dtype))
                for got, want in zip(gathered, whole, strict=True):
                    same(got, want)
                flat = torch.zeros(size * count, dtype=dtype)
                dist.all_gather_into_tensor(flat, part(rank, count, dtype))
                same(flat, torch.cat(whole))


def check_gather_and_scatter() -> None:
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        for root in range(size):
            got = [torch.zeros(1003) for _ in range(size)] if rank == root else None
            dist.gather(part(rank, 1003), got, dst=root)
            for tensor, want in zip(got or [], parts(1003), strict=False):
                same(tensor, want)
            mine = torch.zeros(1003)
            dist.scatter(mine, parts(1003) if rank == root else None, src=root)
            same(mine, part(rank, 1003))


def check_reduce_scatter() -> None:
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        for op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.BOR):
            whole = torch.stack(parts(size * 1001, torch.int32)).reshape(size, size, 1001)
            want = {ReduceOp.SUM: whole.sum(0), ReduceOp.MAX: whole.max(0).values}.get(op)
            if want is None:
                want = whole[0]
                for other in whole[1:]:
                    want = want | other
            mine = torch.zeros(1001, dtype=torch.int32)
            dist.reduce_scatter_tensor(mine, part(rank, size * 1001, torch.int32), op=op)
            same(mine, want[rank].int())
            listed = torch.zeros(1001, dtype=torch.int32)
            dist.reduce_scatter(listed, list(part(rank, size * 1001, torch.int32).chunk(size)), op=op)
            same(listed, mine)


def check_all_to_all() -> None:
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        # Rank r sends r + to + 1 rows to rank `to`.
        sends = [rank + to + 1 for to in range(size)]
        given = torch.cat([torch.full((rows, 3), float(10 * rank + to)) for to, rows in enumerate(sends)])
        want = torch.cat([torch.full((of + rank + 1, 3), float(10 * of + rank)) for of in range(size)])
        taken = torch.zeros_like(want)
        dist.all_to_all_single(taken, given, sends, sends)
        same(taken, want)
        listed = list(torch.zeros_like(want).split(sends))
        dist.all_to_all(listed, list(given.split(sends)))
        same(torch.cat(listed), want)
        equal = torch.zeros(size * 50_000)
        dist.all_to_all_single(equal, torch.full((size * 50_000,), float(rank)))
        same(equal, torch.arange(float(size)).repeat_interleave(50_000))


def check_tensors_that_are_not_contiguous() -> None:
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        base = part(rank, 60).reshape(6, 10)
        dist.all_reduce(base.t())
        same(base, torch.stack(parts(60)).sum(0).reshape(6, 10))
        outputs = [torch.zeros(10, 6).t() for _ in range(size)]
        dist.all_gather(outputs, part(rank, 60).reshape(10, 6).t())
        for got, want in zip(outputs, parts(60), strict=True):
            same(got.contiguous(), want.reshape(10, 6).t().contiguous())


def check_results_that_overlap_inputs() -> None:
    """At a rank's own place, and at others: the input is read before the result is written there."""
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        for count in (4, 1000, 1 << 18):
            summed = torch.stack(parts(size * count)).sum(dim=0)[rank * count :][:count]
            for begin in (rank * count, 0, count // 2 if size > 1 else 0):
                gathered = torch.zeros(size * count)
                own = gathered[begin : begin + count]
                own.copy_(part(rank, count))
                dist.all_gather_into_tensor(gathered, own)
                same(gathered, torch.cat(parts(count)))
                values = part(rank, size * count)
                result = values[begin : begin + count]
                dist.reduce_scatter_tensor(result, values)
                same(result, summed)
            exchanged = part(rank, size * count)
            dist.all_to_all_single(exchanged, exchanged)
            same(exchanged, torch.cat([one[rank * count :][:count] for one in parts(size * count)]))


def check_results_whose_elements_share_memory_are_refused() -> None:
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        shared = torch.ones(1).expand(5)
        calls: list[Callable[[], object]] = [
            lambda: dist.all_reduce(shared),
            lambda: dist.broadcast(shared, 0),
            lambda: dist.all_gather([shared] * size, torch.ones(5)),
            lambda: dist.reduce_scatter_tensor(shared, torch.ones(5 * size)),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="share memory"):
                call()
        dist.reduce(shared if rank > 0 else torch.ones(5), dst=0)
        flat = torch.zeros(5 * size)
        dist.all_gather_into_tensor(flat, shared)  # an input may be so
        same(flat, torch.ones(5 * size))


def check_messages() -> None:
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        if size == 1:
            return
        right, left = (rank + 1) % size, (rank - 1) % size
        for count in SIZES:  # all send before they receive
            works = [dist.isend(part(rank, count), right, tag=tag) for tag in (5, 6)]
            for tag in (6, 5):
                tensor = torch.zeros(count)
                dist.recv(tensor, left, tag=tag)
                same(tensor, part(left, count))
            for work in works:
                assert work is not None
                work.wait()
        if rank == 0:
            seen = {dist.recv(tensor := torch.zeros(3)): float(tensor[0]) for _ in range(size - 1)}
            assert seen == {other: float(other) for other in range(1, size)}
        else:
            dist.send(torch.full((3,), float(rank)), 0)


def check_messages_beside_collectives() -> None:
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        received = torch.zeros(100_000)
        if rank == 0 and size > 1:
            work = dist.irecv(received, size - 1)
        total = torch.ones(1000)
        dist.all_reduce(total)
        if rank == size - 1 and size > 1:
            dist.send(torch.full((100_000,), 4.0), 0)
        dist.all_reduce(total)
        same(total, torch.full((1000,), float(size**2)))
        if rank == 0 and size > 1:
            assert work is not None
            work.wait()
            same(received, torch.full((100_000,), 4.0))


def check_many_at_once() -> None:
    with world():
        size = dist.get_world_size()
        tensors = [torch.full((count,), 1.0) for count in (3, 100_000, 1, 5000) * 8]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        future = works[-1].get_future()
        done: list[float] = []
        noted = future.then(lambda found: done.append(float(found.value()[0][0])))
        for work in reversed(works):
            work.wait()
        assert all(work.is_completed() for work in works)
        for tensor in tensors:
            same(tensor, torch.full_like(tensor, float(size)))
        noted.wait()
        dist.barrier()
        assert done == [float(size)]


def check_groups_of_some() -> None:
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        for _ in range(2):  # a group that was destroyed can be made again
            low = list(range((size + 1) // 2))
            mine = low if rank in low else [other for other in range(size) if other not in low]
            group = dist.new_group(mine, use_local_synchronization=True)
            tensor = torch.tensor([1.0])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == len(mine)
            dist.destroy_process_group(group)


def check_split_groups() -> None:
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        whole = dist.group.WORLD
        assert whole is not None
        low = list(range((size + 1) // 2))
        mine = low if rank in low else [other for other in range(size) if other not in low]
        for _ in range(2):  # of one name
            group = whole.split_group(mine, timeout=timedelta(milliseconds=50))
            assert group is not None
            assert (group.rank(), group.size()) == (mine.index(rank), len(mine))
            tensor = torch.tensor([rank + 1.0])
            group.allreduce([tensor]).wait()
            assert tensor.item() == sum(mine) + len(mine)
            group.shutdown()
        time.sleep(0.2 if rank == 0 else 0.0)  # the others wait longer than a split's timeout
        dist.all_reduce(torch.ones(1))
        assert (whole.split_group([0]) is None) == (rank != 0)


def check_split_group_of_torch() -> None:
    with world(), pytest.raises(RuntimeError, match="No device associated with the default pg"):
        dist.split_group(split_ranks=[[0]])


def check_object_collectives() -> None:
    with world():
        rank, size = dist.get_rank(), dist.get_world_size()
        objects: list[object] = [None] * size
        dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank * 1000})
        assert objects == [{"rank": other, "text": "x" * other * 1000} for other in range(size)]
        said = [rank, "hello"] if rank == size - 1 else [None, None]
        dist.broadcast_object_list(said, src=size - 1)
        assert said == [size - 1, "hello"]
