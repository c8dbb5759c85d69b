"""Ranks of which one is late with an operation, as long as the test wants, or submits another one."""

from __future__ import annotations

import ctypes
import os
import time

import torch

import roundelay.torch as hvd
from rank_here import Rank


def init(me: Rank, give_up_s: int, **settings: str) -> None:
    """Warns after a second, gives up after `give_up_s`, if that is not 0."""
    os.environ["ROUNDELAY_STALL_CHECK_TIME_SECONDS"] = "1"
    os.environ["ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS"] = str(give_up_s)
    os.environ.update(settings)
    me.init()


def all_note_the_error_and_reduce(me: Rank, late: int) -> None:
    """Everyone notes the error, the late rank when all others have it; then an allreduce by all must work.

    The clock of the operation runs from the first rank that comes, which is after all have begun the barrier.
    """
    init(me, give_up_s=3)
    begin = time.time()
    hvd.barrier()
    if me.number == late:
        me.wait_for(*(f"seen.{rank}" for rank in range(hvd.size()) if rank != late))
    try:
        hvd.allreduce(torch.ones(3), name="absent.weight")
    except hvd.HorovodInternalError as error:
        me.note(error)
        assert 3.0 < time.time() - begin < 20.0, time.time() - begin
    else:
        # Or the late rank did not get it at once, but met the others' next one.
        raise AssertionError("no error")
    assert hvd.allreduce(torch.ones(3), name="absent.weight", op=hvd.Sum).sum() == 3 * hvd.size()
    me.stamp()


def is_late_with_nine(me: Rank) -> None:
    init(me, give_up_s=0, ROUNDELAY_CYCLE_TIME="10000")
    begin = time.time()
    hvd.barrier()
    if me.number == 1:
        os.close(os.open(me.folder / "gate", os.O_RDONLY))
    handles = [hvd.allreduce_async(torch.ones(3), name=f"layer.{i}", op=hvd.Sum) for i in range(9)]
    assert all(hvd.synchronize(handle).sum() == 3 * hvd.size() for handle in handles)
    if me.number == 1:
        me.tell("waited", str(time.time() - begin))


def load(me: Rank, keeps_the_gil: bool) -> None:
    """Waits, in a system call, until the test has read what is said of it."""
    if keeps_the_gil:
        ctypes.PyDLL(None).open(os.fsencode(me.folder / "gate"), os.O_RDONLY)
    else:
        os.close(os.open(me.folder / "gate", os.O_RDONLY))


def epoch(me: Rank, keeps_the_gil: bool) -> None:
    load(me, keeps_the_gil)


def is_late_in_a_function(me: Rank, late: int, keeps_the_gil: bool = False, stacks: str = "1") -> None:
    init(me, give_up_s=0, ROUNDELAY_STALL_STACKS=stacks)
    if me.number == late:
        epoch(me, keeps_the_gil)
    hvd.allreduce(torch.ones(3), name="step")


def wait_for_each_other(me: Rank) -> None:
    init(me, give_up_s=0)
    mine = hvd.allreduce_async(torch.ones(3), name=f"of.rank.{me.number}")
    me.wait_for("go")
    hvd.allreduce(torch.ones(3), name=f"of.rank.{1 - me.number}")
    hvd.synchronize(mine)


def give_up_different_names(me: Rank) -> None:
    init(me, give_up_s=2)
    try:
        hvd.allreduce(torch.ones(3), name=f"of.rank.{me.number}")
    except hvd.HorovodInternalError as error:
        me.note(error)
    me.wait_for("seen.0", "seen.1")  # a barrier has 2 s, too
    hvd.barrier()


def is_late_after_steps(me: Rank, late: int, steps: int) -> None:
    me.init()

    def step() -> None:
        total = hvd.allreduce(torch.ones(3), name="step", op=hvd.Sum)
        assert total.sum() == 3 * hvd.size()

    for _ in range(steps):
        step()
    if me.number == late:
        me.tell("late")
        me.wait_for("go")
    step()
