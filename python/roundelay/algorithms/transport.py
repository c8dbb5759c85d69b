"""Joins a job whose operations take an algorithm that the user names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import roundelay.torch as hvd
from roundelay import config
from roundelay.algorithms.exchange import everyone_valid

# The algorithms of docs/fabrics.md for the operations of a step: allgather of the ranks' statuses, alltoall
# up the shard tree, broadcast of the total.
TRANSPORTS = ("binomial_tree", "pairwise", "pipelined_tree", "recursive_doubling", "ring")
_VARIABLE = "ROUNDELAY_ALGORITHM"


def join(transport: str | None, call: str) -> None:
    """Joins the job if need be. Collective.

    transport: one of TRANSPORTS; None leaves the choice to the job. Raises ValueError on every rank if some
    rank names another algorithm, or if the job was joined before with another algorithm.
    """
    known = transport is None or transport in TRANSPORTS
    with _named(transport if known else None):
        hvd.init()
    everyone_valid(lambda: _check(transport), call)


@contextmanager
def _named(transport: str | None) -> Iterator[None]:
    """Lets ``init`` read the transport from the environment, which is as before afterwards."""
    if transport is None:
        yield
        return
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = transport
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def _check(transport: str | None) -> None:
    if transport is None:
        return
    if transport not in TRANSPORTS:
        raise ValueError(f"transport is {transport!r}, but must be None or one of {', '.join(TRANSPORTS)}")
    taken = config.effective().algorithm
    if taken != transport:
        raise ValueError(
            f"transport is {transport!r}, but the job was joined with algorithm {taken!r}: "
            f"call run before init, or start the job with {_VARIABLE}={transport}"
        )
