"""Ranks that take themselves for nodes in two racks: moves over three levels, and sums that end on shards."""

from __future__ import annotations

import pytest
import torch

import roundelay.torch as hvd
from in_time import wait_until
from ranks import Check, output, run_check, two_by_two

pytestmark = pytest.mark.slow

RACKS = "ROUNDELAY_TOPOLOGY=rack=2,node=2 ROUNDELAY_FACTORS=2,2,2"
# Nodes of 2, 1, 1 and 2 ranks.
UNEVEN = (
    "ROUNDELAY_NODE_ID=n$(((RANK > 1) + (RANK > 2) + (RANK > 3))) LOCAL_RANK=$(((RANK == 1) + (RANK == 5))) "
)
MOVED = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
SIZES = (1, 7, 4099, 700_001)  # the largest takes several pieces


def own(count: int, dtype: torch.dtype, rank: int) -> torch.Tensor:
    """Small whole numbers, which tell ranks and places apart."""
    return ((torch.arange(count) * 3 + rank) % 7).to(dtype)


def rows_of(count: int, rank: int) -> int:
    """The first ranks of a reducescatter get one row more."""
    return count // hvd.size() + (rank < count % hvd.size())


def shard_of(whole: torch.Tensor) -> torch.Tensor:
    """This rank's rows of a reducescatter."""
    begin = sum(rows_of(whole.shape[0], rank) for rank in range(hvd.rank()))
    return whole[begin : begin + rows_of(whole.shape[0], hvd.rank())]


def check_there_are_three_levels() -> None:
    levels = hvd.topology().levels
    assert [level.name for level in levels] == ["node", "rack"]
    assert [len(level.parts) for level in levels] == [4, 2]


def check_allgather() -> None:
    for dtype in MOVED:
        for count in SIZES:
            # Ranks have different numbers of rows, and one has none.
            rows = [0 if rank == 2 else count + rank for rank in range(hvd.size())]
            got = hvd.allgather(own(rows[hvd.rank()], dtype, hvd.rank()), name=f"{dtype}.{count}")
            parts = [own(number, dtype, rank) for rank, number in enumerate(rows)]
            assert torch.equal(got, torch.cat(parts)), (dtype, count)


def check_broadcast_from_every_rank() -> None:
    for root in range(hvd.size()):
        for dtype in MOVED:
            for count in SIZES:
                got = hvd.broadcast(own(count, dtype, hvd.rank()), root, name=f"{root}.{dtype}.{count}")
                assert torch.equal(got, own(count, dtype, root)), (root, dtype, count)


def check_a_reducescatter_has_the_bits_of_an_allreduce() -> None:
    torch.manual_seed(hvd.rank())
    for dtype in FLOATS:
        for count in SIZES[1:]:
            for op in (hvd.Sum, hvd.Average):
                numbers = torch.randn(count).to(dtype)
                whole = hvd.allreduce(numbers, op=op, name=f"whole.{dtype}.{count}.{op}")
                shard = hvd.reducescatter(numbers, op=op, name=f"shard.{dtype}.{count}.{op}")
                assert torch.equal(shard, shard_of(whole)), (dtype, count, op)


def check_one_row_is_summed_on_one_rank() -> None:
    for count in SIZES:
        parts = [own(count, torch.int64, rank) for rank in range(hvd.size())]
        got = hvd.reducescatter(parts[hvd.rank()].reshape(1, count), op=hvd.Sum, name=f"row.{count}")
        assert torch.equal(got, shard_of(torch.stack(parts).sum(0).reshape(1, count)))


def check_sums_beside_what_moves() -> None:
    """Many operations of all kinds are under way at once."""
    ranks = range(hvd.size())
    summed, handles = [], []
    for index, count in enumerate((4099, 40_001, 700_001)):
        parts = [own(count, torch.float32, rank) for rank in ranks]
        mine, total = parts[hvd.rank()], torch.stack(parts).sum(0)
        summed += [total, torch.cat(parts), shard_of(total), parts[index]]
        handles += [
            hvd.allreduce_async(mine, op=hvd.Sum, name=f"allreduce.{index}"),
            hvd.allgather_async(mine, name=f"allgather.{index}"),
            hvd.reducescatter_async(mine, op=hvd.Sum, name=f"reducescatter.{index}"),
            hvd.broadcast_async(mine, index, name=f"broadcast.{index}"),
        ]
    for handle, right in zip(handles, summed, strict=True):
        assert torch.equal(hvd.synchronize(handle), right)


def run_over_racks(check: Check, np: int, nodes: str) -> None:
    """Runs the check on ranks with these variables. All three stages are there, as rank 0 logs."""
    run_check(check, np, env={"ROUNDELAY_LOG_LEVEL": "info"}, each=f"{nodes} {RACKS}", mpi=False)
    wait_until(lambda: "process set 0: allreduces" in output(), 20.0, "no plan is logged", output)
    assert "process set 0: allreduces go over 2 (shm) x 2 (tcp) x 2 (tcp)" in output()


def test_uneven_nodes(check: Check) -> None:
    run_over_racks(check, 6, UNEVEN)


@pytest.mark.nightly
def test_equal_nodes(check: Check) -> None:
    run_over_racks(check, 8, two_by_two())
