"""Ranks of which one stops itself, inside a collective or before it. The test may let it go on."""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time

import torch

import roundelay.torch as hvd
import traps
from rank_here import Rank

TURNS, STOP_IN_TURN = 30, 2


def init(me: Rank, timeout_s: float) -> None:
    os.environ["ROUNDELAY_PROGRESS_TIMEOUT"] = str(timeout_s)
    os.environ["ROUNDELAY_FUSION_THRESHOLD"] = "0"
    os.environ["ROUNDELAY_THETA"] = str(1 << 30)
    os.environ["ROUNDELAY_CYCLE_TIME"] = "100"
    me.init()


def loop(me: Rank, victim: int, size: int) -> None:
    """A turn is a barrier and four operations, which only the flushes of the ranks order.

    When a rank is inside the last one, all have been ordered. The victim forbids writing to a page in the
    middle of its result; the signal handler of the write stops the process, and then allows it.
    """
    bigs = [torch.ones(size // 4) for _ in range(4)]
    page = traps.page_from(bigs[-1].data_ptr() + bigs[-1].nbytes // 2)

    def stop() -> None:
        me.stamp()
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        traps.protect(page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)

    for turn in range(TURNS):
        hvd.barrier()
        if me.number == victim and turn == STOP_IN_TURN:
            me.tell("began", str(time.time()))
            traps.on_write(stop)
            traps.protect(page, mmap.PAGESIZE, mmap.PROT_READ)
        handles = [hvd.allreduce_async_(big, name=f"big.{i}", op=hvd.Average) for i, big in enumerate(bigs)]
        for handle in handles:
            hvd.synchronize(handle)
        assert all((big == 1).all() for big in bigs)


def stops_within(me: Rank, victim: int, timeout_s: float, size: int) -> None:
    init(me, timeout_s)
    with me.watched():
        loop(me, victim, size)


def stops_within_and_lives(me: Rank, victim: int, timeout_s: float, size: int) -> None:
    """Until the test has enough."""
    init(me, timeout_s)
    try:
        loop(me, victim, size)
    except hvd.HorovodInternalError as error:
        me.note(error)
        me.wait_for("enough")


def rank_0_stops_before(me: Rank) -> None:
    os.environ["ROUNDELAY_STALL_CHECK_TIME_SECONDS"] = "1"
    os.environ["ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS"] = "4"
    me.init()
    if me.number == 0:
        me.stamp()
        os.kill(os.getpid(), signal.SIGSTOP)
    with me.watched():
        hvd.allreduce(torch.ones(3), name="never")
