"""Objects from all ranks; and everything of roundelay.torch.functions, and SyncBatchNorm, on process sets."""

from __future__ import annotations

import copy
from typing import Any

import numpy
import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from roundelay.torch.sync_batch_norm import SyncBatchNorm


@pytest.mark.parametrize("np", [1, 2, 3])
def test_objects(np: int, check: Check) -> None:
    run_check(check, np)


class _Refuses:
    def __reduce__(self) -> str:
        raise TypeError("it stays here")


def check_objects_of_all_ranks_in_their_order() -> None:
    for name in (None, "named"):
        mine = {"rank": hvd.rank(), "tensor": torch.full((hvd.rank(),), hvd.rank()), "none": None}
        gathered = allgather_object(mine, name=name)
        assert [each["rank"] for each in gathered] == list(range(hvd.size()))
        assert [each["tensor"].tolist() for each in gathered] == [[rank] * rank for rank in range(hvd.size())]
        assert gathered[hvd.rank()] is not mine
    assert allgather_object(None) == [None] * hvd.size()
    rank = hvd.rank()
    functions = allgather_object(lambda value: value + rank)
    assert [function(1) for function in functions] == list(range(1, hvd.size() + 1))


def check_roots_of_every_type() -> None:
    """Those that broadcast takes; an error names others on all ranks."""
    roots: tuple[Any, ...] = (numpy.int64(0), torch.tensor(0), False)
    for root in roots:
        assert broadcast_object(hvd.rank(), root) == 0
        broadcast_optimizer_state(torch.optim.Adam([torch.nn.Parameter(torch.ones(2))]), root)
    for root in (-1, 2**40, None):
        with pytest.raises(ValueError, match="root_rank is"):
            broadcast_object(hvd.rank(), root)  # type: ignore[arg-type]


def check_state_of_types_that_travel_and_are_not_reduced() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    types = (torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2)
    optimizer.state[parameter] = {str(dtype): torch.full((3,), hvd.rank() + 1.0).to(dtype) for dtype in types}
    broadcast_optimizer_state(optimizer, 0)
    for dtype in types:
        value = optimizer.state[parameter][str(dtype)]
        assert value.dtype == dtype
        assert value.float().tolist() == [1.0] * 3


def check_sizes_that_differ_much() -> None:
    for size in (0, 70_000, 3_000_000):
        gathered = allgather_object(b"x" * (size * hvd.rank()))
        assert [len(each) for each in gathered] == [size * rank for rank in range(hvd.size())]


def check_what_cannot_be_pickled_is_an_error_everywhere() -> None:
    last = hvd.size() - 1
    mine = hvd.rank() == last
    with pytest.raises(TypeError if mine else hvd.HorovodInternalError, match="it stays here") as raised:
        allgather_object(_Refuses() if mine else "fine")
    assert mine or f"rank {last} could not pickle" in str(raised.value)
    assert allgather_object(hvd.rank()) == list(range(hvd.size()))


def check_objects_while_a_rank_has_joined() -> None:
    if hvd.rank() > 0:
        last = hvd.size() - 1
        assert allgather_object(["o"] * hvd.rank()) == [["o"] * rank for rank in range(1, hvd.size())]
        mine = hvd.rank() == last
        with pytest.raises(TypeError if mine else hvd.HorovodInternalError, match="it stays here") as raised:
            allgather_object(_Refuses() if mine else "fine")
        assert mine or f"rank {last} could not pickle" in str(raised.value)
    hvd.join()
    assert allgather_object(hvd.rank()) == list(range(hvd.size()))


def _step_of_adam(parameter: torch.nn.Parameter) -> torch.optim.Optimizer:
    optimizer = torch.optim.Adam([parameter], lr=1.0 + hvd.rank())
    parameter.grad = torch.full_like(parameter, 1.0 + hvd.rank())
    optimizer.step()
    return optimizer


@needs_ranks(2)
def check_process_sets() -> None:
    """Two sets at a time, which do not wait for each other: the last rank, and the others."""
    last = hvd.size() - 1
    others: Any = hvd.add_process_set(list(range(last)))
    alone: Any = hvd.add_process_set([last])
    mine, root = (alone, last) if hvd.rank() == last else (others, last - 1)
    assert broadcast_object(hvd.rank(), root, process_set=mine) == root
    assert allgather_object(hvd.rank(), process_set=mine) == mine.ranks
    parameter = torch.nn.Parameter(torch.full((3,), float(hvd.rank())))
    broadcast_parameters([parameter], root, process_set=mine)
    assert parameter.tolist() == [root] * 3
    optimizer = _step_of_adam(parameter)
    broadcast_optimizer_state(optimizer, root, process_set=mine)
    assert optimizer.param_groups[0]["lr"] == 1.0 + root
    assert optimizer.state[parameter]["exp_avg"][0].item() == pytest.approx(0.1 * (1.0 + root))
    with pytest.raises(ValueError, match="set"):
        broadcast_object(1, root, process_set=others if mine is alone else alone)
    hvd.barrier()
    for process_set in (others, alone):
        hvd.remove_process_set(process_set)


@needs_ranks(3)
def check_batch_norm_on_process_sets() -> None:
    pair: Any = hvd.add_process_set([0, 1])
    rest: Any = hvd.add_process_set(list(range(2, hvd.size())))
    mine = pair if hvd.rank() < 2 else rest
    whole = torch.randn(6 * mine.size(), 4, dtype=torch.float64) + len(mine.ranks)
    plain = torch.nn.BatchNorm1d(4, dtype=torch.float64)
    synced = SyncBatchNorm(4, process_set=mine).double()
    expected = plain(whole)
    begin = 6 * mine.rank()
    output = synced(whole[begin : begin + 6])
    torch.testing.assert_close(output, expected[begin : begin + 6], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(synced.running_var, plain.running_var, rtol=1e-12, atol=1e-12)
    copied = copy.deepcopy(synced)
    assert copied.process_set is mine
    output = copied(whole[begin : begin + 6])
    torch.testing.assert_close(output, expected[begin : begin + 6], rtol=1e-12, atol=1e-12)
    hvd.barrier()
    for process_set in (pair, rest):
        hvd.remove_process_set(process_set)
