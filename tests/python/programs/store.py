"""Ranks that meet by PyTorch's store, without MPI."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path

import torch

import roundelay.torch as hvd
from rank_here import Rank
from roundelay import _core
from roundelay._internal import backend

TYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8,
)  # fmt: skip


def _say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # in one write: ranks share the pipe


def _train() -> None:
    torch.manual_seed(1)
    model = torch.nn.Linear(40, 3)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(4):
        optimizer.zero_grad()
        model(torch.full((2, 40), float(hvd.rank() + step))).sum().backward()
        optimizer.step()
    weights = hvd.allgather(model.weight.detach().reshape(1, -1))
    assert all(torch.equal(weights[0], other) for other in weights)


def _sums() -> None:
    for dtype in TYPES:
        for count in (0, 1, 4097):
            got = hvd.allreduce(torch.full((count,), hvd.rank() + 1).to(dtype), op=hvd.Sum)
            assert got.tolist() == [sum(range(1, hvd.size() + 1))] * count, (dtype, count, got)
    assert hvd.allreduce(torch.tensor([hvd.rank() == 1, True]), op=hvd.Min).tolist() == [False, True]


def _without_mpi() -> None:
    assert "libmpi" not in Path("/proc/self/maps").read_text()


def add(_: Rank) -> None:
    torch.set_num_threads(1)
    hvd.init()
    _sums()
    _say(f"done {hvd.rank()}")
    _without_mpi()


def train_and_init_again(_: Rank) -> None:
    torch.set_num_threads(1)
    hvd.init()
    assert hvd.size() == 2
    assert hvd.local_rank() == int(os.environ["LOCAL_RANK"])
    assert hvd.gloo_enabled()
    assert not hvd.mpi_enabled()
    assert _core.transports() == {"bootstrap": "store", "channel": "shm", "fabric": "shm"}
    _sums()
    _train()
    hvd.shutdown()
    for _again in range(3):  # at different speed
        if int(os.environ["RANK"]) == 0:
            torch.ones(300, 300) @ torch.ones(300, 300)
        hvd.init()
        hvd.barrier()
        hvd.shutdown()
    # A default group of the user's own, on the same store.
    torch.distributed.init_process_group("gloo")
    hvd.init()
    ones = torch.ones(3)
    torch.distributed.all_reduce(ones)
    assert torch.equal(hvd.allreduce(torch.ones(3), op=hvd.Sum), ones)
    _say(f"done {hvd.rank()}")
    _without_mpi()


def work_without_shared_memory(_: Rank) -> None:
    torch.set_num_threads(1)
    hvd.init()
    assert _core.transports()["fabric"] == os.environ["ROUNDELAY_FABRIC"]
    _sums()
    _train()
    both = hvd.add_process_set([0, 2])
    if hvd.rank() != 1:
        assert hvd.allreduce(torch.ones(5000), op=hvd.Sum, process_set=both).tolist() == [2.0] * 5000
    hvd.remove_process_set(both)
    gathered = hvd.allgather(torch.full((hvd.rank(), 2), hvd.rank()))
    assert gathered[:, 0].tolist() == [1, 2, 2]
    assert hvd.alltoall(torch.arange(3.0)).tolist() == [float(hvd.rank())] * 3
    handles = [hvd.allreduce_async(torch.ones(1 << 18), name=f"n{i}", op=hvd.Sum) for i in range(6)]
    assert all(bool((hvd.synchronize(handle) == 3).all()) for handle in handles)
    hvd.shutdown()
    hvd.init()
    _sums()
    _say(f"done {hvd.rank()}")
    _without_mpi()


def fail_at_the_first_attempt(_: Rank) -> None:
    hvd.init()
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if attempt == 0 and hvd.rank() == 1:
        os._exit(1)
    try:
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [2.0] * 3
    except hvd.HorovodInternalError:
        assert attempt == 0
        raise
    _say(f"attempt {attempt} done {hvd.rank()}")


def rank_1_is_killed(_: Rank) -> None:
    hvd.init()
    hvd.allreduce(torch.ones(8))
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        hvd.allreduce(torch.ones(1 << 20))
    except hvd.HorovodInternalError as error:
        print("noticed:", error)


# --- what init() says ---


def _attempt(**changes: str) -> str:
    path, launch = backend.choose("auto", {**os.environ, **changes})
    assert launch.rendezvous is not None
    try:
        _core.init(path, _core.Rendezvous(**dataclasses.asdict(launch.rendezvous)))
    except RuntimeError as error:
        return f"init: {error}"
    return "init went well"


def try_to_meet(_: Rank) -> None:
    print(_attempt())


def try_to_meet_together(me: Rank, ranks: list[int]) -> None:
    """An import may take longer than the start timeout."""
    me.tell(f"here.{me.number}")
    me.wait_for(*(f"here.{rank}" for rank in ranks))
    print(_attempt())


def try_places(_: Rank, places: list[dict[str, str]]) -> None:
    for place in places:
        print(_attempt(**place))


def try_to_meet_and_stay(me: Rank, first: bool) -> None:
    """The first job goes on until the test ends it."""
    print(_attempt(), flush=True)
    if first:
        me.tell(f"up.{me.number}")
        me.wait_for("over")
        _core.shutdown()
        print(_attempt())
