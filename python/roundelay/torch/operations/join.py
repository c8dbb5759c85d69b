"""join and barrier: operations without data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roundelay import _core, _gpu
from roundelay.torch.operations.common import Call
from roundelay.torch.process_sets import ProcessSet, global_process_set

# join() calls these on all ranks of the process set when all have joined, with the set and the rank that
# joined last.
after_join: list[Callable[[ProcessSet, int], None]] = []


def join(device: Any = -1, process_set: ProcessSet = global_process_set) -> int:
    """Waits until all ranks have called it; returns the rank that came last. Call it when data has run out.

    Meanwhile the others' operations go on without this rank. It adds nothing to an allreduce (Average still
    divides by the number of all ranks) and no rows to an allgather. A broadcast from it fails on the others.
    ``device`` is accepted for compatibility; ValueError if the machine has GPUs and it is none of them. The
    result is a world rank, the same on all ranks.
    """
    with Call("join", None, process_set) as call:
        count = _gpu.devices()
        number = isinstance(device, int) and not isinstance(device, bool)
        if count is not None and number and not -1 <= device < count:
            raise call.wrong(f"device is {device}, but this process sees GPUs 0 to {count - 1} (-1: none)")
    last_rank = int(_core.join(call.group)[0])
    for tell in after_join:
        tell(process_set, last_rank)
    return last_rank


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the set has called it."""
    _core.barrier(Call("barrier", None, process_set).group)
