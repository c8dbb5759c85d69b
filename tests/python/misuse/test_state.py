"""Everything of the interface that needs init(), before it: one error, which names the cure."""

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


@pytest.mark.parametrize("name", USES)
def test_before_init(name: str) -> None:
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match=r"has not been initialized; use hvd\.init\(\)"):
        USES[name]()
