"""Process sets that live as long as a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import roundelay.torch as hvd


@contextmanager
def process_set_of(ranks: list[int]) -> Iterator[hvd.ProcessSet]:
    """Adds a set of these ranks, and removes it when all are done. All ranks mean the global set."""
    if len(ranks) == hvd.size():
        yield hvd.global_process_set
        return
    process_set = hvd.add_process_set(ranks)
    yield process_set
    hvd.barrier()
    hvd.remove_process_set(process_set)


def all_but_the_last() -> list[int]:
    """Returns the job's ranks without the last one, but at least one."""
    return list(range(max(1, hvd.size() - 1)))
