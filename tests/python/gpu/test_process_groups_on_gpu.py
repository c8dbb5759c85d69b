"""Calls of torch.distributed over backend roundelay with tensors on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gpu_device
import roundelay.torch as hvd
from gpu_device import held, on
from process_groups import world
from ranks import Check, run_check, two_by_two
from roundelay.torch import ddp

CALLS = Path(__file__).parents[1] / "process_group" / "test_calls.py"
ON_GPU = {"RANKS_DEVICE": "fakegpu"}
ELEMENTS = 1 << 15
pytestmark = pytest.mark.slow


@pytest.mark.checks_of(CALLS)
@pytest.mark.parametrize("np", [2, 3])
def test_calls(np: int, check: Check) -> None:
    run_check(check, np, env=ON_GPU, fresh=True)


@pytest.mark.checks_of(CALLS)
def test_calls_of_two_nodes(check: Check) -> None:
    run_check(check, 4, env=ON_GPU, each=two_by_two(), mpi=False)


def test_streams_and_training(check: Check) -> None:
    run_check(check, 2, env=ON_GPU, fresh=True)


def _own(number: int = 0) -> torch.Tensor:
    return torch.full((ELEMENTS,), float(dist.get_rank() + 10 * number))


def _expect_sum(result: torch.Tensor, number: int = 0) -> None:
    total = sum(rank + 10 * number for rank in range(dist.get_world_size()))
    assert result.unique().tolist() == [total], number


@contextmanager
def _late() -> Iterator[torch.Tensor]:
    """Yields a tensor that gets its values after the block: the device does nothing inside."""
    tensor, values = torch.zeros(ELEMENTS), _own().cpu()
    with held():
        tensor.copy_(values, non_blocking=True)
        yield tensor


def check_a_call_does_not_wait_for_the_device() -> None:
    with world():
        with _late() as tensor:
            work = dist.all_reduce(tensor, async_op=True)
            assert not work.is_completed()
        work.wait()
        _expect_sum(tensor)


def check_a_device_that_does_nothing_is_named() -> None:
    if gpu_device.NAME == "cuda":
        return  # which works again after a second
    fails = pytest.raises(dist.DistBackendError, match="fakegpu:0 has not computed the call's tensors")
    with world(timeout=timedelta(seconds=1)), _late() as tensor, fails:
        dist.all_reduce(tensor)


def check_abort_ends_the_wait_for_a_device() -> None:
    with world(), _late() as tensor:
        work = dist.all_reduce(tensor, async_op=True)
        hvd.barrier()
        if dist.get_rank() == 0:
            dist.distributed_c10d._get_default_group().abort()
        with pytest.raises(dist.DistBackendError, match=r"abort\(\)"):
            work.wait()


def check_calls_follow_the_stream_of_their_caller() -> None:
    one, other = torch.Stream(gpu_device.NAME), torch.Stream(gpu_device.NAME)
    with world():
        for number in range(12):
            with on(one):
                tensor = _own(number)
                work = dist.all_reduce(tensor, async_op=True)
            with on(other):
                work.wait()
                _expect_sum(tensor, number)


def check_a_result_is_written_after_its_memory_was_read() -> None:
    with world():
        for number in range(12):
            output = _own(number)
            read = output * 2
            dist.broadcast(output, 0)
            assert read.unique().tolist() == [2 * (dist.get_rank() + 10 * number)]
            assert output.unique().tolist() == [10 * number]


def check_a_call_in_a_graph_is_refused() -> None:
    if not hasattr(torch.Stream, "is_capturing"):
        return  # this torch tells nobody
    with world():
        tensor = _own()
        peer = 1 - dist.get_rank()
        for call in (dist.all_reduce, partial(dist.broadcast, src=0), partial(dist.send, dst=peer)):
            with gpu_device.captured(), pytest.raises(ValueError, match="a graph is being captured"):
                call(tensor)
        dist.all_reduce(tensor)
        _expect_sum(tensor)


def check_messages_wait_for_the_device() -> None:
    with world():
        for number in range(12):
            if dist.get_rank() == 0:
                dist.send(_own(number) + 1, 1)
            else:
                tensor = torch.zeros(ELEMENTS)
                dist.recv(tensor, 0)
                assert tensor.unique().tolist() == [10 * number + 1]


def check_futures_have_results() -> None:
    with world():
        future = dist.all_reduce(_own(), async_op=True).get_future()
        doubled = future.then(lambda done: done.value()[0] * 2)
        _expect_sum(doubled.wait() / 2)


def check_tensors_of_two_devices_are_refused() -> None:
    with world():
        both = f"are on cpu and on {_own().device}; bring them to one device"
        with pytest.raises(ValueError, match=both):
            dist.all_to_all_single(torch.zeros(ELEMENTS), torch.zeros(ELEMENTS, device="cpu"))
        tensor = _own()
        dist.all_reduce(tensor)  # nothing is lost
        _expect_sum(tensor)


def _train(device: str) -> Sequence[torch.Tensor]:
    with torch.device("cpu"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(30, 20), nn.Tanh(), nn.Linear(20, 5))
        batches = torch.randn(6, 8, 30, generator=torch.Generator().manual_seed(dist.get_rank()))
    wrapped = DistributedDataParallel(model.to(device), bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad()
        wrapped(batch.to(device)).square().mean().backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def check_ddp_trains_to_the_weights_of_the_cpu() -> None:
    with world():
        for got, want in zip(_train(gpu_device.NAME), _train("cpu"), strict=True):
            torch.testing.assert_close(got, want)


def check_a_hook_with_a_strategy_is_refused() -> None:
    with world():
        model = DistributedDataParallel(nn.Linear(300, 20))
        model.register_comm_hook(*ddp.hook("csc:keep=0.5"))
        loss = model(torch.ones(2, 300)).sum()
        with pytest.raises(ValueError, match="gradients of the CPU"):
            loss.backward()
