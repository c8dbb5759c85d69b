"""One rank on each host. Who only meets does without hvd, whose import takes longest."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Iterator

import torch

from rank_here import Rank
from roundelay import _core
from roundelay._internal import backend


def _begin(me: Rank) -> None:
    """Ranks begin at the same time."""
    me.tell(f"here.{me.number}")
    me.wait_for(*(f"here.{rank}" for rank in range(int(os.environ["WORLD_SIZE"]))))


def _attempt(interface: str = "", patience_s: int = 30) -> None:
    os.environ.update(ROUNDELAY_INTERFACE=interface, ROUNDELAY_START_TIMEOUT=str(patience_s))
    path, launch = backend.choose("auto")
    assert launch.rendezvous is not None
    try:
        _core.init(path, _core.Rendezvous(**dataclasses.asdict(launch.rendezvous)))
    except (RuntimeError, ValueError) as error:
        print("init:", error, flush=True)
    else:
        print("met", flush=True)


def try_interfaces(me: Rank) -> None:
    _begin(me)
    _attempt("wlan0")
    _attempt("docker0", 5)
    _attempt("eth0")
    _core.shutdown()


def meet_within_5_s(me: Rank) -> None:
    _begin(me)
    _attempt(patience_s=5)


def _steps() -> Iterator[None]:
    import roundelay.torch as hvd

    while True:
        assert hvd.allreduce(torch.ones(1000), op=hvd.Sum)[0] == hvd.size()
        yield


def _after_20_steps(me: Rank) -> Iterator[None]:
    """Returns the rest of them."""
    import roundelay.torch  # noqa: F401

    _begin(me)
    _attempt()
    steps = _steps()
    for _ in range(20):
        next(steps)
    return steps


def _tell_of_work(me: Rank) -> None:
    me.tell(f"runs.{me.number}", str(os.getpid()))


def _say_when(error: Exception) -> None:
    print(f"at {time.time():.1f}:", error, flush=True)


def reduce_until_a_host_is_lost(me: Rank) -> None:
    import roundelay.torch as hvd

    rest = _after_20_steps(me)
    _tell_of_work(me)
    try:
        for _ in rest:
            pass
    except hvd.HorovodInternalError as error:
        _say_when(error)


def wait_until_a_host_is_lost(me: Rank, lost: int) -> None:
    import roundelay.torch as hvd

    _after_20_steps(me)
    if me.number == lost:
        _tell_of_work(me)
        time.sleep(80)
    _tell_of_work(me)
    try:
        hvd.allreduce(torch.ones(1), name="never.submitted")
    except hvd.HorovodInternalError as error:
        _say_when(error)


def reduce_until_enough(me: Rank) -> None:
    """At any moment a report of each rank is under way."""
    import roundelay.torch as hvd

    rest = _after_20_steps(me)
    said = []

    def say_something() -> None:
        for number in range(200):
            said.append(hvd.allreduce_async(torch.ones(1), name=f"said.{number}"))
            time.sleep(0.05)

    speaker = threading.Thread(target=say_something)
    speaker.start()
    _tell_of_work(me)
    while not hvd.allreduce(torch.tensor((me.folder / "enough").exists()), op=hvd.Max):
        next(rest)
        me.tell(f"step.{me.number}")
    speaker.join()
    for handle in said:
        hvd.synchronize(handle)
    print("went on")


def use_all_operations(me: Rank, elements: int) -> None:
    """Checks the results, or says what ended the job."""
    import roundelay.torch as hvd

    try:
        _begin(me)
        _attempt(os.environ["ROUNDELAY_INTERFACE"])
        for step in range(3):
            _check_all_operations(elements + step)
        print("all right")
    except hvd.HorovodInternalError as error:
        print(error)


def _check_all_operations(elements: int) -> None:
    import roundelay.torch as hvd

    rank, size = hvd.rank(), hvd.size()
    mine = torch.arange(elements, dtype=torch.float64) + rank
    everything = torch.stack([torch.arange(elements, dtype=torch.float64) + other for other in range(size)])
    assert torch.equal(hvd.allreduce(mine, op=hvd.Sum), everything.sum(0))
    assert torch.equal(hvd.allgather(mine), everything.flatten())
    assert torch.equal(hvd.broadcast(mine, size - 1), everything[-1])
    assert torch.equal(hvd.alltoall(everything[rank].repeat(size)), everything.flatten())
    rows = mine[: elements // size * size].reshape(size, -1)
    summed = everything.sum(0)[: rows.numel()].reshape(size, -1)
    assert torch.equal(hvd.reducescatter(rows, op=hvd.Sum), summed[rank : rank + 1])
