"""join and barrier: operations without data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from roundelay import _core
from roundelay._internal import gpu
from roundelay.torch._internal.operations.common import Call
from roundelay.torch.process_sets import ProcessSet, global_process_set, set_id

# join() calls these on all ranks of the process set when all have joined, with the set and the rank that
# joined last.
after_join: list[Callable[[ProcessSet, int], None]] = []
# Functions of the process set that return further sets of this rank, which it joins too.
joined_too: list[Callable[[ProcessSet], Iterable[ProcessSet]]] = []


def join(device: Any = -1, process_set: ProcessSet = global_process_set) -> int:
    """Waits until all ranks have called it; returns the rank that came last. Call it when data has run out.

    Meanwhile the others' operations go on without this rank. It adds nothing to an allreduce (Average still
    divides by the number of all ranks) and no rows to an allgather. A broadcast from it fails on the others.
    ``device`` is accepted for compatibility; ValueError if the machine has GPUs and it is none of them. The
    result is a world rank, the same on all ranks.
    """
    with Call("join", None, process_set) as call:
        count = gpu.devices()
        number = isinstance(device, int) and not isinstance(device, bool)
        if count is not None and number and not -1 <= device < count:
            raise call.wrong(f"device is {device}, but this process sees GPUs 0 to {count - 1} (-1: none)")
    # In a fixed order: a rank's optimizers may use one set several times.
    further = {set_id(one): one for find in joined_too for one in find(process_set)}
    further.pop(call.group, None)
    handles = [_core.join_async(group) for group in (call.group, *further)]
    last_rank, *others = [int(_core.synchronize(handle)[0]) for handle in handles]
    for joined, last in ((process_set, last_rank), *zip(further.values(), others, strict=True)):
        for tell in after_join:
            tell(joined, last)
    return last_rank


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the set has called it."""
    _core.barrier(Call("barrier", None, process_set).group)
