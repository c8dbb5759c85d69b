"""What a rank sees while it waits for others: signals, errors of its peers, its own threads."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

import pytest
import torch

from in_time import expect_within, three_tries
from ranks import Check, run_check
from roundelay import _core

SUM = 1


@three_tries
@pytest.mark.parametrize("np", [2, 3])
def test_core_waits(np: int, check: Check) -> None:
    run_check(check, np, fresh=True)


def submit(tensor: torch.Tensor, name: str) -> int:
    return _core.allreduce_async(tensor, tensor, name, SUM, 1.0, 1.0, 0)


class RungError(Exception):
    pass


def check_a_signal_ends_a_wait_and_the_handle_stays_valid() -> None:
    def ring(number: int, frame: FrameType | None) -> None:
        raise RungError

    tensor = torch.full((4,), float(_core.rank()))
    if _core.rank() == 0:
        before = signal.signal(signal.SIGUSR1, ring)
        handle, waited = submit(tensor, "late"), _core.stats()["exposed_ns"]

        def ring_in_the_wait() -> None:
            while _core.stats()["exposed_ns"] == waited:
                time.sleep(0.01)
            signal.raise_signal(signal.SIGUSR1)

        ringer = threading.Thread(target=ring_in_the_wait)
        ringer.start()
        with pytest.raises(RungError):
            _core.synchronize(handle)  # nothing else ends it: the others wait for the barrier below
        ringer.join()
        signal.signal(signal.SIGUSR1, before)
        assert not _core.poll(handle)
        assert _core.synchronize(_core.barrier_async(0)) is not None  # now the others go on
    else:
        assert _core.synchronize(_core.barrier_async(0)) is not None
        handle = submit(tensor, "late")
    assert _core.synchronize(handle) is not None
    assert tensor.tolist() == [sum(range(_core.size()))] * 4


def check_a_wait_leaves_the_interpreter_to_other_threads() -> None:
    counted = 0
    tensor = torch.ones(4)
    if _core.rank() == 0:
        handle = submit(tensor, "gil")
        waiter = threading.Thread(target=_core.synchronize, args=(handle,))
        waiter.start()
        while counted < 1000:  # were the interpreter held, the wait would never end: the others wait for us
            counted += 1
        assert waiter.is_alive()
        assert _core.synchronize(_core.barrier_async(0)) is not None
        waiter.join()
    else:
        assert _core.synchronize(_core.barrier_async(0)) is not None
        assert _core.synchronize(submit(tensor, "gil")) is not None
    assert tensor.tolist() == [_core.size()] * 4


def check_a_local_error_reaches_the_peers_at_once() -> None:
    begin = time.monotonic()
    if _core.rank() == 0:
        with pytest.raises(ValueError, match="tensor 'bad' is sparse"):
            submit(torch.eye(2).to_sparse(), "bad")
    else:
        with pytest.raises(_core.HorovodInternalError, match="rank 0: tensor 'bad' is sparse"):
            _core.synchronize(submit(torch.eye(2), "bad"))
    expect_within(5.0, time.monotonic() - begin)
    tensor = torch.ones(2)
    assert _core.synchronize(submit(tensor, "bad")) is not None  # the next use of the name works
    assert tensor.tolist() == [_core.size()] * 2


def check_staged_tensors_are_untouched_by_a_failed_operation() -> None:
    base = torch.arange(8.0)
    strided = base[::2] if _core.rank() == 0 else base[::2][:3]
    with pytest.raises(_core.HorovodInternalError, match="Mismatched allreduce of 'strided'"):
        _core.synchronize(submit(strided, "strided"))
    assert base.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def check_layouts_may_differ_between_ranks() -> None:
    values = torch.arange(24.0).reshape(1, 2, 3, 4)
    mine = values.contiguous(memory_format=torch.channels_last) if _core.rank() == 0 else values.clone()
    assert _core.synchronize(submit(mine, "layouts")) is not None
    assert torch.equal(mine, values * _core.size())
