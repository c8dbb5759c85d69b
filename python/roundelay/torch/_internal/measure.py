"""Measures a training step's time: counters for ``stats()`` and marks in the timeline."""

from __future__ import annotations

import time

from roundelay import _core

_counters = {
    "buckets_cast_back": 0,
    "gate_dense_ns": 0,
    "gate_kept_dense": 0,
    "gate_kept_ns": 0,
    "gate_searches": 0,
    "generation": 0,
    "gradients_copied": 0,
    "gradients_moved_out": 0,
    "late_merges": 0,
    "late_merges_ns": 0,
    "parameter_transfers": 0,
    "pool_cuts": 0,
    "pool_orders": 0,
    "reset_init_ns": 0,
    "reset_place_ns": 0,
    "reset_restore_ns": 0,
    "reset_sync_ns": 0,
    "workers_came": 0,
    "workers_left": 0,
}


class Span:
    """A span of this thread's time. It adds to a counter and is marked in a timeline that is recorded."""

    __slots__ = ("begin", "counter", "name")

    def __init__(self, name: str, counter: str | None = None) -> None:
        self.name, self.counter = name, counter
        self.begin = time.monotonic_ns()  # the steady clock, which the core uses too

    def end(self) -> None:
        """Ends the span now."""
        end = time.monotonic_ns()
        if self.counter is not None:
            count(self.counter, end - self.begin)
        if _core.timeline_enabled():
            _core.timeline_mark(self.name, self.begin, end)


def count(counter: str, number: int = 1) -> None:
    """Adds to a counter of this process."""
    _counters[counter] += number


def record(counter: str, number: int) -> None:
    """Puts a number in the place of a counter's."""
    _counters[counter] = number


def stats() -> dict[str, int]:
    """Returns counters of this rank, by name.

    Since init, time: ``under_way_ns``: at least one operation was between its submission and its end, in
    nanoseconds; ``exposed_ns``: the part of it in which the program waited for communication and did not
    compute. docs/timeline.md shows the same of each step.

    Since init, data: ``operations``: fused operations that are done; ``gpu_operations``: those on a GPU;
    ``gpu_sums``, ``gpu_sum_bytes``: kernels that added up what MPI brought, and their results
    (docs/techniques/device_mpi.md); ``pointer_hits``, ``pointer_misses``: questions where memory lies, that
    the pointer cache answered, and that went to the driver;
    ``tensors``, ``bytes``: their tensors and payload; ``fused_tensors``: tensors that shared an operation;
    ``bytes_staged``: copied into shared memory for the node's ranks; ``sleeps``, ``wakes``: times that
    collectives slept and woke peers there. ``technique_operations``: those on buckets with a technique;
    ``technique_bytes``: their gradients; ``technique_called_bytes``: the bytes that were sent instead.

    Since init, control: ``reports_sent``, ``full_requests``, ``cached_requests``: reports, and the requests
    in them, whole or by their ids; ``orders_given``: orders of lanes that this rank coordinates;
    ``messages_sent``, ``message_bytes``: all control messages; ``wakeups_sent``: empty messages that wake a
    peer's thread; ``schedule_locks``, ``schedule_unlocks``, ``locked_operations``: docs/schedule_lock.md.

    Since the process began: ``strangers``: callers without the job's secret or of another user, dropped;
    ``backward_ns``: from a backward's first gradient to its end; ``pool_cuts``,
    ``pool_orders``: changes of a gradient pool's buckets, and of its order; ``gradients_moved_out``:
    gradients of an earlier step that somebody still held when their place was needed;
    ``gradients_copied``: gradients that were copied or cast into a pool; ``buckets_cast_back``: buckets whose
    results were cast out of one; ``parameter_transfers``: times that this rank has sent its parameters
    (strategies daso and local_sgd); ``late_merges``, ``late_merges_ns``: merges that a step of daso had to
    wait for, and how long.

    Of an elastic job (docs/elastic.md): ``generation``: the present one; ``workers_came``, ``workers_left``:
    since this process is a rank; ``reset_restore_ns``, ``reset_place_ns``, ``reset_init_ns``,
    ``reset_sync_ns``: the stages of all changes, up to the question for a place, the launcher's answer, the
    end of init(), and the end of sync().

    On rank 0, of strategy auto (docs/techniques/auto.md): ``gate_searches``: those that are over;
    ``gate_kept_dense``: those after which dense stayed, because nothing pays; ``gate_dense_ns``,
    ``gate_kept_ns``: the median step of the last trials, dense and with what was kept.
    """
    return {**_core.stats(), "backward_ns": _core.backward_ns(), **_counters}
