"""What happens on a GPU's streams: who waits for whom, and when memory may be used again."""

from __future__ import annotations

import pytest
import torch

import gpu_device
import roundelay.torch as hvd
from gpu_device import on
from ranks import Check, run_check, run_checks

pytestmark = pytest.mark.slow

ROUNDS = 12
ELEMENTS = 1 << 15
ON_GPU = {"RANKS_DEVICE": "fakegpu"}


@pytest.mark.parametrize("np", [1, 2, 4])
def test_streams(np: int, check: Check) -> None:
    run_check(check, np, env=ON_GPU, fresh=True)


def test_an_event_that_nobody_waits_for_is_noticed() -> None:
    with pytest.raises(AssertionError, match="failed in check_"):
        run_checks(__file__, 2, env={**ON_GPU, "FAKE_GPU_FORGETS": "1"}, fresh=True)


def _mine(number: int) -> torch.Tensor:
    return torch.full((ELEMENTS,), float(hvd.rank() + 10 * number))


def _expect(result: torch.Tensor, number: int) -> None:
    total = sum(rank + 10 * number for rank in range(hvd.size()))
    assert result.unique().tolist() == [total], number


def check_results_are_there_for_the_next_operator() -> None:
    for number in range(ROUNDS):
        _expect(hvd.allreduce(_mine(number), op=hvd.Sum), number)


def check_submitted_on_one_stream_and_synchronized_on_another() -> None:
    one, other = torch.Stream(gpu_device.NAME), torch.Stream(gpu_device.NAME)
    for number in range(ROUNDS):
        with on(one):
            handle = hvd.allreduce_async(_mine(number), op=hvd.Sum)
        with on(other):
            _expect(hvd.synchronize(handle), number)


def check_several_producing_streams_at_once() -> None:
    streams = [torch.Stream(gpu_device.NAME) for _ in range(4)]
    handles = []
    for number, stream in enumerate(streams * 3):
        with on(stream):
            handles.append(hvd.allreduce_async_(_mine(number), op=hvd.Sum, name=f"several.{number}"))
    for number, handle in enumerate(handles):
        _expect(hvd.synchronize(handle), number)


def check_what_is_not_contiguous_is_staged_in_the_callers_stream() -> None:
    for number in range(ROUNDS):
        strided = torch.full((64, 2 * 33), -1.0)[:, ::2]
        strided.fill_(hvd.rank() + 10.0 * number)
        hvd.allreduce_(strided, op=hvd.Sum)
        _expect(strided, number)


def check_freed_right_after_it_was_submitted() -> None:
    handles = []
    for number in range(ROUNDS):
        handles.append(hvd.allreduce_async(_mine(number), op=hvd.Sum))
        torch.full((ELEMENTS,), -1.0)
    for number, handle in enumerate(handles):
        _expect(hvd.synchronize(handle), number)


def check_freed_right_after_it_was_synchronized_elsewhere() -> None:
    """Its memory is the first stream's, which does not wait for the result."""
    home, other = torch.Stream(gpu_device.NAME), torch.Stream(gpu_device.NAME)
    for number in range(ROUNDS):
        with on(home):
            mine = _mine(number)
            handle = hvd.allreduce_async(mine, op=hvd.Sum)
        with on(other):
            result = hvd.synchronize(handle)
        del mine
        with on(home):
            again = [torch.full((ELEMENTS,), -1.0) for _ in range(3)]
        with on(other):
            _expect(result, number)
            del result, again


def check_memory_that_the_core_allocates() -> None:
    home, other = torch.Stream(gpu_device.NAME), torch.Stream(gpu_device.NAME)
    for number in range(ROUNDS):
        rows = 64 * (hvd.rank() + 1)
        with on(home):
            handle = hvd.allgather_async(torch.full((rows, 8), float(hvd.rank() + number)))
        with on(other):
            gathered = hvd.synchronize(handle)
        with on(home):
            torch.full((ELEMENTS,), -1.0)
        with on(other):
            assert gathered.device.type == gpu_device.NAME
            begin = 0
            for rank in range(hvd.size()):
                part = gathered[begin : begin + 64 * (rank + 1)]
                assert part.unique().tolist() == [rank + number]
                begin += len(part)


def check_poll_says_when_results_are_there() -> None:
    for number in range(ROUNDS):
        handle = hvd.allreduce_async_(mine := _mine(number), op=hvd.Sum)
        while not hvd.poll(handle):
            pass
        with on(torch.Stream(gpu_device.NAME)):  # which waits for nothing
            _expect(mine, number)
        hvd.synchronize(handle)


def check_submitting_does_not_wait_for_the_device() -> None:
    """Nor does poll(). Waiting for the result does here, as without NCCL its bytes go through the host."""
    with gpu_device.held():
        handles = [hvd.allreduce_async(torch.empty(100), name=f"held.{number}") for number in range(3)]
        polled = [hvd.poll(handle) for handle in handles]
    assert not any(polled)
    for handle in handles:
        hvd.synchronize(handle)


def check_handles_that_nobody_asks_for() -> None:
    for number in range(ROUNDS):
        hvd.allreduce_async(_mine(number), op=hvd.Sum)
    _expect(hvd.allreduce(_mine(1), op=hvd.Sum), 1)
