"""Ranks in a process group of torch.distributed, of which one calls something else, is late or ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from in_time import expect_within
from rank_here import POLL_S, Rank

TIMEOUT = timedelta(seconds=60)


def _join(me: Rank, timeout: timedelta = TIMEOUT) -> int:
    torch.set_num_threads(1)
    dist.init_process_group("roundelay", timeout=timeout)
    dist.all_reduce(torch.ones(3))
    me.ready()
    return dist.get_rank()


def _exchange(splits: list[int]) -> None:
    size = sum(splits)
    dist.all_to_all_single(torch.ones(size), torch.ones(size), splits, splits)


def _parts(rank: int) -> list[torch.Tensor]:
    """Returns parts of which the rank's own has one element, and the other two."""
    return [torch.ones(1 if rank == part else 2) for part in range(2)]


def _complex_or_real(
    rank: int, whole: torch.dtype = torch.complex64, part: torch.dtype = torch.float32
) -> torch.Tensor:
    return torch.zeros(8, dtype=part) if rank == 1 else torch.zeros(4, dtype=whole)


def _gather_coalesced(rank: int) -> None:
    given = [torch.zeros(8, dtype=torch.float32 if rank == 1 else torch.int32), torch.zeros(3)]
    gathered = [[torch.zeros_like(one) for one in given] for _ in range(2)]
    _default_group().allgather_coalesced(gathered, given).wait()


def _scatter_sums(rank: int) -> None:
    given = _complex_or_real(rank)
    dist.reduce_scatter_tensor(torch.zeros_like(given[: len(given) // 2]), given)


WRONG: dict[str, Callable[[int], object]] = {
    "size": lambda rank: dist.all_reduce(torch.ones(4 + (rank == 1))),
    "large size": lambda rank: dist.all_reduce(torch.ones(400_000 + (rank == 1))),
    "dtype": lambda rank: dist.all_reduce(torch.ones(4, dtype=torch.int32 if rank == 1 else torch.float32)),
    # Not by functions of torch.distributed that pass complex numbers as real ones.
    "complex or real": lambda rank: _default_group().allreduce([_complex_or_real(rank)]).wait(),
    "complex or real to all": lambda rank: _default_group().broadcast(_complex_or_real(rank), 0).wait(),
    "complex or real shards": _scatter_sums,
    "complex32": lambda rank: (
        _default_group().allreduce([_complex_or_real(rank, torch.complex32, torch.float16)]).wait()
    ),
    "float4": lambda rank: dist.broadcast(
        torch.zeros(8, dtype=torch.uint8).view(torch.uint8 if rank == 1 else torch.float4_e2m1fn_x2), 1
    ),
    "coalesced types": _gather_coalesced,
    "operator": lambda rank: dist.all_reduce(
        torch.ones(4), op=dist.ReduceOp.MAX if rank == 1 else dist.ReduceOp.SUM
    ),
    "operation": lambda rank: (
        dist.broadcast(torch.ones(4), 0) if rank == 1 else dist.all_reduce(torch.ones(4))
    ),
    "form": lambda rank: (
        dist.reduce(torch.ones(4), 0)
        if rank == 1
        else dist.reduce_scatter_tensor(torch.ones(2), torch.ones(4))
    ),
    "root": lambda rank: (dist.broadcast(torch.ones(4), rank % 2), dist.barrier()),
    "splits": lambda rank: _exchange([4, 2] if rank == 1 else [3, 3]),
    "splits of which some are large": lambda rank: _exchange([18_000, 9_000] if rank == 1 else [13_500] * 2),
    "parts": lambda rank: dist.all_gather(_parts(rank), torch.ones(1)),
    "shards": lambda rank: dist.reduce_scatter(torch.ones(1), _parts(rank)),
    "root's size": lambda rank: dist.broadcast(torch.ones(3 if rank == 1 else 100_000), 0),
    "message": lambda rank: dist.send(torch.ones(5), 0) if rank == 1 else dist.recv(torch.ones(4), 1),
}


def calls_wrongly(me: Rank, what: str, nodes: int = 1) -> None:
    """Rank 1 calls something else, and all call on until they hear of it."""
    if nodes > 1:
        os.environ.update(ROUNDELAY_NODE_ID=str(me.number), LOCAL_RANK="0")
    rank = _join(me)
    me.stamp()
    try:
        WRONG[what](rank)
        dist.barrier()
    except Exception as error:
        me.note(error)


def runs_ahead_without_bytes(me: Rank) -> None:
    """Rank 0's tensors have no elements, and it makes many calls before rank 1 comes to the first one."""
    rank = _join(me)
    me.stamp()
    if rank == 1:
        me.wait_for("called")
    counts = [1000 if rank == 1 else 0] * 6 + [1000]
    ended = 0
    try:  # a later call may hear of it first
        works = [dist.all_reduce(torch.ones(count), async_op=True) for count in counts]
        me.tell("called")
        for work in works:
            work.wait()
            ended += 1
    except Exception as error:
        me.note(error)
    me.tell(f"ended.{rank}", str(ended))


def comes_late(me: Rank) -> None:
    """Rank 1 comes after the group's time."""
    rank = _join(me, timedelta(seconds=2))
    me.stamp()
    if rank == 1:
        me.wait_for("noted.0")
    try:
        dist.all_reduce(torch.ones(5))
    except Exception as error:
        me.note(error)
    me.tell(f"noted.{rank}")


def _wait_for_what_does_not_come(me: Rank, how: str) -> None:
    try:
        if how == "message":
            dist.recv(torch.ones(3), 1)
        elif how == "future":
            work = dist.all_reduce(torch.ones(3), async_op=True)
            work.get_future().wait()
        else:
            dist.all_reduce(torch.ones(3))
    except Exception as error:
        me.note(error)


def ends_early(me: Rank, end: str, how: str) -> None:
    """Rank 1 ends while rank 0, which has joined, waits for it."""
    if _join(me) == 0:
        me.tell("joined.0")
        return _wait_for_what_does_not_come(me, how)
    me.wait_for("joined.0")
    me.stamp()
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "raise":
        raise ValueError("my own fault")
    if end == "exit":
        sys.exit(3)
    dist.destroy_process_group()
    return None


def ends_in_order(me: Rank) -> None:
    """Rank 0 leaves when its last call is over, though its peer comes to that call later."""
    if _join(me) == 0:
        dist.broadcast(torch.full((3,), 7.0), 0)
        dist.destroy_process_group()
        me.tell("left")
        return
    me.wait_for("left")
    tensor = torch.zeros(3)
    dist.broadcast(tensor, 0)
    me.tell("got", str(tensor.tolist()))


def waits_with_a_limit(me: Rank) -> None:
    """A wait that is too short raises, and the call goes on."""
    rank = _join(me)
    tensor = torch.ones(3)
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        try:
            work.wait(timedelta(milliseconds=50))
        except Exception as error:
            me.note(error)
        me.tell("waited")
        work.wait()
    else:
        me.wait_for("waited")
        dist.all_reduce(tensor)
    me.tell(f"sum.{rank}", str(tensor.tolist()))


WAITS: dict[str, Callable[[], object]] = {
    "call": lambda: dist.all_reduce(torch.ones(3)),
    "future": lambda: _started().get_future().wait(),
    "message": lambda: dist.recv(torch.ones(3), 2),
    "monitored barrier": lambda: _default_group().monitored_barrier(),
}


def _started() -> Any:
    return dist.all_reduce(torch.ones(3), async_op=True)


def _default_group() -> Any:
    return dist.distributed_c10d._get_default_group()


def _until_asleep(thread: threading.Thread) -> None:
    """Returns when the thread sleeps in the kernel."""
    stat = Path(f"/proc/self/task/{thread.native_id}/stat")
    while stat.read_text().rpartition(") ")[2][0] != "S":
        time.sleep(POLL_S)


def aborts_from_another_thread(me: Rank, soon_s: float) -> None:
    """Ranks 0 and 1 wait for rank 2; a thread of rank 1 aborts meanwhile. Then all meet in a new group."""
    torch.set_num_threads(1)
    for number, how in enumerate((*WAITS, None)):
        store = f"file://{me.folder / f'store.{number}'}"
        dist.init_process_group("roundelay", init_method=store, rank=me.number, world_size=3, timeout=TIMEOUT)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [3.0, 3.0, 3.0]
        if how:
            _abort_or_hear_of_it(me, how, soon_s)
    dist.destroy_process_group()


def _abort_or_hear_of_it(me: Rank, how: str, soon_s: float) -> None:
    failed: list[Exception] = []

    def wait(action: Callable[[], object]) -> None:
        me.tell(f"{how}.{me.number}")
        try:
            action()
        except dist.DistBackendError as error:
            failed.append(error)

    if me.number == 1:
        waiter = threading.Thread(target=wait, args=(WAITS[how],))
        waiter.start()
        me.wait_for(f"{how}.0", f"{how}.1")
        _until_asleep(waiter)
        began = time.time()
        if how == "call":
            _default_group().abort()
        else:
            dist.distributed_c10d._abort_process_group()  # destroys the group, too
        me.tell(f"{how}.aborted", str(began))
        waiter.join()
    elif me.number == 0:
        wait(WAITS[how])
    else:
        me.wait_for(f"{how}.aborted")
        wait(dist.barrier)
    assert "rank 1 has aborted the group" in str(failed[0])
    me.wait_for(f"{how}.aborted")
    expect_within(soon_s, time.time() - float((me.folder / f"{how}.aborted").read_text()), how)
    if dist.is_initialized():
        dist.destroy_process_group()


def names_late_ranks(me: Rank) -> None:
    """Ranks 1 and 2 come to no monitored barrier."""
    rank = _join(me)
    group = _default_group()
    group.monitored_barrier()
    if rank == 0:
        try:
            group.monitored_barrier(timedelta(seconds=1), wait_all_ranks=True)
        except Exception as error:
            me.note(error)
        me.tell("noted")
    me.wait_for("noted")
