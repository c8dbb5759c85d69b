"""A hundred thousand operations and a thousand process sets leave nothing: nothing grows."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, mpirun, run_check
from roundelay.torch._internal.operations import handles

pytestmark = [pytest.mark.slow, pytest.mark.skipif(mpirun() is None, reason="no mpirun")]

OPERATIONS = 100_000
SETS = 1000
GROWTH_BYTES = 4 << 20  # 90,000 operations that leak 50 bytes each are more
ENVIRONMENT = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}


def test_memory_and_handles_do_not_grow(check: Check) -> None:
    run_check(check, 2, env=ENVIRONMENT, fresh=True)


@dataclass(frozen=True)
class Usage:
    """What this process holds."""

    files: int
    threads: int
    handles: int  # not waited for
    resident: int  # bytes

    @classmethod
    def now(cls, before: Usage | None = None) -> Usage:
        """Waits until no more is open and runs than before: the kernel takes a moment to forget a thread."""
        gc.collect()
        deadline = time.monotonic() + 10
        while before is not None and time.monotonic() < deadline:
            if _entries("fd") <= before.files and _entries("task") <= before.threads:
                break
            time.sleep(0.01)
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        waiting = len(handles._results)
        return cls(_entries("fd"), _entries("task"), waiting, resident)


def _entries(folder: str) -> int:
    return len(list(Path("/proc/self", folder).iterdir()))


def expect_flat(before: Usage) -> None:
    after = Usage.now(before)
    text = f"before {before}, after {after}"
    # What was on its way out is counted before: fewer are no leak, and a leak is hundreds.
    assert after.files <= before.files, text
    assert after.threads <= before.threads, text
    assert after.handles == before.handles == 0, text
    assert after.resident - before.resident < GROWTH_BYTES, text


def wrong_calls(turn: int) -> list[Callable[[], object]]:
    """A mistake of one rank, a disagreement, and one under a name that comes only once."""
    one = hvd.rank() == turn % hvd.size()
    tensor = torch.ones(4, device="meta" if one else "cpu")
    return [
        lambda: hvd.allreduce(tensor, name="mistake"),
        lambda: hvd.allgather(tensor),
        lambda: hvd.allreduce(torch.ones(4 + one), name="shape"),
        lambda: hvd.grouped_allreduce([torch.ones(2), torch.ones(4 + one)], name=f"once.{turn}"),
        lambda: hvd.broadcast(torch.ones(4), int(one), name="root"),
    ]


def a_mixture(turn: int) -> int:
    """Some of everything; how many operations it was."""
    small, rows = torch.ones(8), torch.ones(2 * hvd.size(), 3)
    begun = [hvd.allreduce_async(small, name=f"gradient.{index}") for index in range(40)]
    begun += [hvd.allreduce_async(small, name=f"tickets.{turn}.{index}") for index in range(20)]
    begun += [hvd.allreduce_async_(small.clone()) for _ in range(10)]
    for name in (f"group.{turn}", "group", None):
        begun.append(hvd.grouped_allreduce_async([small, rows], name=name))
        begun.append(hvd.grouped_allgather_async([small, rows], name=name and f"{name}.gather"))
        begun.append(hvd.allgather_async(rows[hvd.rank() :], name=name and f"{name}.rows"))
        begun.append(hvd.alltoall_async(rows, splits=[2] * hvd.size(), name=name and f"{name}.all"))
        begun.append(hvd.reducescatter_async(rows, name=name and f"{name}.scatter"))
        begun.append(hvd.broadcast_async(small, 0, name=name and f"{name}.root"))
    if turn % 2:
        assert hvd.poll(begun[0]) in (False, True)
    assert all(hvd.synchronize(handle) is not None for handle in begun)
    hvd.barrier()
    wrong = wrong_calls(turn)
    for call in wrong:
        with pytest.raises((ValueError, hvd.HorovodInternalError)):
            call()
    return len(begun) + 1 + len(wrong)


def check_a_hundred_thousand_operations() -> None:
    done = turn = 0
    before: Usage | None = None
    while done < OPERATIONS:
        done += a_mixture(turn)
        turn += 1
        if before is None and done > OPERATIONS // 10:
            before = Usage.now()
    assert before is not None
    expect_flat(before)


def check_a_thousand_process_sets() -> None:
    before: Usage | None = None
    ids = set()
    for turn in range(SETS):
        process_set = hvd.add_process_set([turn % 2])
        ids.add(process_set.process_set_id)
        if process_set.included():
            assert hvd.allreduce(torch.ones(3), name="in.set", process_set=process_set).sum() == 3
            handle = hvd.allreduce_async(torch.ones(3), process_set=process_set)
            assert hvd.synchronize(handle) is not None
        assert hvd.remove_process_set(process_set)
        if turn == SETS // 10:
            before = Usage.now()
    assert before is not None
    expect_flat(before)
