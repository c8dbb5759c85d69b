"""Ranks that leave: by an exception, with an exit code, early, without shutdown(), forked, with threads."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
from typing import Literal

import torch

import roundelay.torch as hvd
from rank_here import Rank

Work = Literal["sleep", "reduce"]


def work(what: Work) -> None:
    """What the other ranks are at."""
    if what == "sleep":
        time.sleep(60)
    while True:
        hvd.allreduce(torch.ones(1 << 20), name="x")


def boom(me: Rank) -> None:
    time.sleep(0.5)
    me.stamp()
    raise ValueError("boom\u00e9")


def raises_while_others_wait(me: Rank) -> None:
    me.init()
    if me.number == 1:
        boom(me)
    with me.watched():
        hvd.allreduce(torch.ones(3), name="x")


def raises(me: Rank, what: Work) -> None:
    me.init()
    if me.number == 1:
        boom(me)
    work(what)


def raises_with_a_hook_of_its_own(me: Rank) -> None:
    sys.excepthook = lambda kind, *_: print("own hook", kind.__name__, flush=True)
    raises(me, "sleep")


def exits_with_3(me: Rank, what: Work) -> None:
    me.init()
    if me.number == 1:
        time.sleep(0.5)
        me.stamp()
        sys.exit(3)
    if what == "sleep":
        time.sleep(60)
    hvd.allreduce(torch.ones(3), name="x")


def exits_while_others_wait(me: Rank, status: int | str) -> None:
    me.init()
    if me.number == 1:
        me.stamp()
        sys.exit(status)
    with me.watched():
        hvd.allreduce(torch.ones(3), name="x")


def catches_an_exit_and_leaves(me: Rank) -> None:
    me.init()
    if me.number == 1:
        with contextlib.suppress(SystemExit):
            sys.exit(3)
        me.stamp()
        return
    with me.watched():
        hvd.allreduce(torch.ones(3), name="x")


def leaves_by_os_exit(me: Rank) -> None:
    me.init()
    if me.number == 1:
        time.sleep(0.5)
        me.stamp()
        os._exit(4)
    with me.watched():
        hvd.allreduce(torch.ones(3))


def raises_in_a_gradient_hook(me: Rank) -> None:
    me.init()
    weight = torch.ones(4, requires_grad=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))

    def hook(_: torch.Tensor) -> None:
        if me.number == 1:
            me.stamp()
            raise KeyError("in a hook")

    weight.register_hook(hook)
    with me.watched():
        weight.sum().backward()
        optimizer.step()


def ends_without_shutdown(me: Rank) -> None:
    me.init()
    hvd.allreduce(torch.ones(3))
    me.stamp()


def rank_0_works_after_shutdown(me: Rank) -> None:
    me.init()
    hvd.shutdown()
    if me.number == 0:
        time.sleep(3)
        print("saved", flush=True)
        me.stamp()


def ends_with_operations_under_way(me: Rank) -> None:
    me.init()
    for number in range(20):
        hvd.allreduce_async(torch.ones(1 << 20), name=f"{number}")
    me.tell(f"submitted.{me.number}")
    me.wait_for("submitted.0", "submitted.1")
    me.stamp()


def rank_1_shuts_down_while_rank_0_waits(me: Rank) -> None:
    me.init()
    if me.number == 1:
        time.sleep(0.3)
        me.stamp()
        hvd.shutdown()
        sys.exit(0)
    with me.watched():
        hvd.allreduce(torch.ones(3), name="x")


def raises_alone(me: Rank) -> None:
    me.init()
    hvd.allreduce(torch.ones(3))
    me.stamp()
    raise ValueError("alone")


def forks_a_child_that_reduces(me: Rank, code: int) -> None:
    me.init()
    faulthandler.cancel_dump_traceback_later()  # its thread is not in the child, which would wait for it
    child = os.fork()
    if child == 0:
        try:
            hvd.allreduce(torch.ones(1), name="in.child")
        except RuntimeError as error:
            me.tell(f"child.{me.number}", str(error))
        assert not hvd.is_initialized()
        sys.exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
    me.stamp()


def ends_while_a_daemon_thread_reduces(me: Rank) -> None:
    me.init()
    sets = [hvd.global_process_set]  # of a set of its own, as the peers leave at another time
    if hvd.size() > 1:
        sets = [hvd.add_process_set([one]) for one in range(hvd.size())]
    ones, enough = torch.ones(1000), threading.Semaphore(0)

    def reduce() -> None:
        while True:
            hvd.allreduce_(ones, process_set=sets[me.number])
            enough.release()

    threading.Thread(target=reduce, daemon=True).start()
    for _ in range(20):
        enough.acquire()
    me.stamp()


def ends_while_a_daemon_thread_waits(me: Rank) -> None:
    me.init()
    begun = threading.Event()

    def wait() -> None:
        handle = hvd.allreduce_async(torch.ones(3), name=f"{me.number}")  # no other rank has this name
        begun.set()
        hvd.synchronize(handle)

    if me.number == 0:
        threading.Thread(target=wait, daemon=True).start()
        begun.wait()
    hvd.barrier()
    if me.number == 1:
        me.wait_for_end(0)
    me.stamp()


def uses_it_in_a_thread_after_shutdown(me: Rank, call: Literal["allreduce", "rank"]) -> None:
    me.init()

    def use() -> None:
        hvd.shutdown()
        if call == "rank":
            hvd.rank()
        hvd.allreduce(torch.ones(3))

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join()
