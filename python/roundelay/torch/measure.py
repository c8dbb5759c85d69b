"""Measures a training step's time: counters for ``stats()`` and marks in the timeline."""

from __future__ import annotations

import time

from roundelay import _core

_counters = {
    "backward_ns": 0,
    "buckets_cast_back": 0,
    "gradients_copied": 0,
    "gradients_moved_out": 0,
    "pool_cuts": 0,
    "pool_orders": 0,
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


def stats() -> dict[str, int]:
    """Returns counters of this process: the core's since init (tensors, operations ...), and its optimizers'.

    ``under_way_ns``: how long at least one operation was between its submission and its end; ``exposed_ns``:
    the part of that in which the program waited for communication, instead of computing; the rest is hidden.
    Both in nanoseconds since init; docs/timeline.md shows the same of each step. ``backward_ns``: from a
    backward's first gradient to its end, since the process began. In this rank's work,
    ``bytes_staged`` were copied into shared memory for its node's ranks, ``sleeps`` and ``wakes`` are what
    its collectives slept and whom they woke there; ``messages_sent`` are the control plane's messages, and
    ``wakeups_sent`` those without content that only wake a peer's thread. ``pool_cuts``, ``pool_orders``: how
    often a gradient pool was cut into other buckets, and laid out in another order; ``gradients_moved_out``:
    how often a pool's place was needed while somebody still held the gradient of an earlier step, which was
    copied out; ``gradients_copied``: how many gradients were copied or cast into a pool, and
    ``buckets_cast_back``: how many buckets out of it. Since the process began. ``technique_operations`` are
    operations on buckets with a technique; ``technique_bytes`` their gradients, ``technique_called_bytes``
    what this rank sent of them instead.
    """
    return {**_core.stats(), **_counters}
