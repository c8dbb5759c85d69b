"""Everything of the interface that needs init(), before it: one text, which names the cure, in two types."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import roundelay.torch as hvd

ONES = torch.ones(4)
USES: dict[str, Callable[[], object]] = {
    **{
        name: getattr(hvd, name)
        for name in (
            "rank",
            "size",
            "local_rank",
            "local_size",
            "cross_rank",
            "cross_size",
            "barrier",
            "join",
        )
    },
    **{
        name: (lambda name=name: getattr(hvd, name)(ONES))  # type: ignore[misc]
        for name in (
            *("allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "allgather"),
            *("allgather_async", "alltoall", "alltoall_async", "reducescatter", "reducescatter_async"),
        )
    },
    **{
        name: (lambda name=name: getattr(hvd, name)([ONES]))  # type: ignore[misc]
        for name in (
            *("grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async"),
            *("grouped_allgather", "grouped_allgather_async", "grouped_allreduce_async_"),
            *("grouped_reducescatter", "grouped_reducescatter_async"),
        )
    },
    **{
        name: (lambda name=name: getattr(hvd, name)(ONES, 0))  # type: ignore[misc]
        for name in ("broadcast", "broadcast_", "broadcast_async", "broadcast_async_")
    },
    "alltoall of splits": lambda: hvd.alltoall(ONES, torch.tensor([4])),
    "DistributedOptimizer": lambda: hvd.DistributedOptimizer(torch.optim.SGD([ONES], lr=0.1)),
    "start_timeline": lambda: hvd.start_timeline("timeline.json"),
    "stop_timeline": lambda: hvd.stop_timeline(),
    "global_process_set.size": lambda: hvd.global_process_set.size(),
    "global_process_set.rank": lambda: hvd.global_process_set.rank(),
    "global_process_set.included": lambda: hvd.global_process_set.included(),
    "sparse_allreduce_async": lambda: hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "s", hvd.Sum),
    "broadcast_object": lambda: hvd.broadcast_object(1),
    "allgather_object": lambda: hvd.allgather_object(1),
    "broadcast_parameters": lambda: hvd.broadcast_parameters({"weight": ONES}, 0),
    "poll": lambda: hvd.poll(1),
    "synchronize": lambda: hvd.synchronize(1),
    "add_process_set": lambda: hvd.add_process_set([0]),
    "remove_process_set": lambda: hvd.remove_process_set(hvd.global_process_set),
    "stats": lambda: hvd.stats(),
}


# What Horovod raises a HorovodInternalError for: what starts an operation. All else raises ValueError, and so
# does what asks for the size or the rank before it starts one.
STARTS = ("all", "broadcast", "grouped", "reducescatter", "sparse", "join", "barrier")
ASKS_FIRST = ("alltoall", "alltoall_async", "broadcast_object")


@pytest.mark.parametrize("name", USES)
def test_before_init(name: str) -> None:
    assert not hvd.is_initialized()
    internal = name.startswith(STARTS) and name not in ASKS_FIRST
    with pytest.raises((ValueError, hvd.HorovodInternalError)) as raised:
        USES[name]()
    assert isinstance(raised.value, hvd.HorovodInternalError if internal else ValueError)
    assert str(raised.value) == "Horovod has not been initialized; use hvd.init()."
