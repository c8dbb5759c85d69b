"""Memory of a process group: ranks of a node sum up in it without copies, and DDP's buckets come from it."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import roundelay.torch as hvd
from against_gloo import Turned, assert_as_gloo
from process_groups import world
from ranks import Check, run_check, two_by_two

WIDTH = 300  # a weight of 360 kB


@pytest.mark.parametrize("np", [2, 3])
def test_one_node(np: int, check: Check) -> None:
    run_check(check, np, fresh=True)


@pytest.mark.slow
def test_two_nodes(check: Check) -> None:
    run_check(check, 4, each=two_by_two(), mpi=False)


def _backend(group: dist.ProcessGroup | None = None) -> Any:
    return (group or dist.distributed_c10d._get_default_group())._get_backend(torch.device("cpu"))


def _allocate(
    count: int, dtype: torch.dtype = torch.float32, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    memory: torch.Tensor = _backend(group).allocate_tensor(count, dtype=dtype, device=torch.device("cpu"))
    return memory


def _takes_from_groups() -> bool:
    """Whether the ranks of this job share memory: those of one node."""
    return hvd.local_size() == hvd.size()


def _is_shared(tensor: torch.Tensor) -> bool:
    """Whether the tensor lies in memory that other processes map, too."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(address, 16) for address in line.split()[0].split("-"))
            if begin <= tensor.data_ptr() < end:
                return "/memfd:roundelay" in line
    return False


def _expect_sum(tensor: torch.Tensor) -> None:
    size = dist.get_world_size()
    dist.all_reduce(tensor.fill_(dist.get_rank() + 1))
    assert tensor.unique().tolist() == [size * (size + 1) / 2]


def _held() -> dict[str, int]:
    """Counts what this process holds: descriptors, threads, mappings of shared memory."""
    with open("/proc/self/maps") as maps:
        mapped = sum("/memfd:roundelay" in line for line in maps)
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "mappings": mapped,
    }


def check_a_destroyed_group_leaves_nothing() -> None:
    with world():
        held = []
        for _ in range(3):
            group = dist.new_group(list(range(dist.get_world_size())))
            work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
            dist.destroy_process_group(group)
            del group, work
            gc.collect()
            held.append(_held())
        # What the test itself has left may go meanwhile.
        assert all(held[2][kind] <= count for kind, count in held[0].items()), held


def check_sums_of_memory_of_either_kind() -> None:
    with world():
        assert _backend().supports_tensor_alloc(torch.device("cpu")) is _takes_from_groups()
        _expect_sum(_allocate(100_000) if dist.get_rank() == 1 else torch.empty(100_000))
        room = _allocate(1_000_000)
        assert _is_shared(room) is _takes_from_groups()
        for number, count in enumerate((1, 3, 5_000, 77_777, 500_001)):
            _expect_sum(room[number + dist.get_rank() :][:count])  # in all heaps, at different places
            one = dist.get_rank() == number % dist.get_world_size()
            _expect_sum(room[number:][:count] if one else torch.empty(count))
            _expect_sum(torch.empty(count) if one else room[:count])
        for dtype in (torch.float64, torch.bfloat16, torch.int64):
            _expect_sum(_allocate(20_001, dtype))
        parts = _allocate(20_001, torch.complex64)  # as DDP expects them
        assert parts.dtype == torch.float32
        assert parts.numel() == 40_002


def check_memory_is_given_back_and_outlives_the_group() -> None:
    with world():
        places = {_allocate(100_000).data_ptr() for _ in range(100)}
        assert len(places) == 1 or not _takes_from_groups()
        kept = _allocate(100_000)
        _expect_sum(kept)
    assert kept.unique().numel() == 1
    kept.fill_(7)
    with world():
        _expect_sum(_allocate(100_000))
    assert kept.unique().tolist() == [7]


def check_a_tensor_that_finds_no_place_has_ordinary_memory() -> None:
    with world():
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))  # of shared memory, too
        one = dist.get_rank() == dist.get_world_size() - 1  # whose part makes the file longer
        tensor = _allocate(100_000) if one else None
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        _expect_sum(_allocate(100_000) if tensor is None else tensor)
        assert tensor is None or not _is_shared(tensor)
        assert _allocate(0).numel() == 0


def check_groups_have_memory_of_their_own() -> None:
    with world():
        of_world = _allocate(50_000)
        one = dist.new_group([0, 1])
        if dist.get_rank() < 2:
            of_one = _allocate(50_000, group=one)
            dist.all_reduce(of_world.fill_(1), group=one)  # another group's: staged as any other
            dist.all_reduce(of_one.fill_(1), group=one)
            assert of_world.unique().tolist() == of_one.unique().tolist() == [2]
        _expect_sum(of_world)


def _model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))


def _gradients_are_shared() -> set[bool]:
    model = DistributedDataParallel(_model(), gradient_as_bucket_view=True)
    model(torch.ones(2, WIDTH)).sum().backward()
    return {_is_shared(p.grad) for p in model.parameters() if p.grad is not None}


def check_buckets_of_ddp_lie_there() -> None:
    with world():
        assert _gradients_are_shared() == {_takes_from_groups()}
        os.environ["DDP_DISABLE_COMM_MEM"] = "1"
        assert _gradients_are_shared() == {False}
    with world():  # which leaves the user's choice
        assert _gradients_are_shared() == {False}
    del os.environ["DDP_DISABLE_COMM_MEM"]


def check_complex_gradients() -> None:
    with world():
        model = DistributedDataParallel(Turned(3000), gradient_as_bucket_view=True)
        model().backward()
        mean = (1 + dist.get_world_size()) / 2
        gradient = model.module.weight.grad
        assert torch.equal(gradient, torch.full((3000,), mean, dtype=torch.complex64))
        assert _is_shared(gradient) is _takes_from_groups()


def check_ddp_trains_as_with_gloo() -> None:
    def train() -> Sequence[torch.Tensor]:
        model = DistributedDataParallel(_model(), bucket_cap_mb=0.3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with model.join():
            for step in range(4 + dist.get_rank()):  # others go on when one has joined
                torch.manual_seed(step * 8 + dist.get_rank())
                model(torch.randn(8, WIDTH)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        return [weight.detach() for weight in model.parameters()]

    assert_as_gloo(train)
