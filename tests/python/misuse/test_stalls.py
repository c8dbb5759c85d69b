"""Ranks that use other names, or stay away: named after the stall time, given up after the abort time."""

from __future__ import annotations

import functools
import time

import pytest
import torch

import roundelay.torch as hvd
from in_time import expect_within, wait_until
from meeting import Meeting, meeting
from misuse.expect import expect_parts, expect_the_next_works
from misuse.table import rows
from ranks import Check, mpirun, output, run_check
from roundelay.errors import MismatchError

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

WARNED_S, GIVEN_UP_S, LATEST_S = 1.0, 2.0, 20.0
ENVIRONMENT = {
    "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    "ROUNDELAY_STALL_CHECK_TIME_SECONDS": f"{WARNED_S:.0f}",
    "ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS": f"{GIVEN_UP_S:.0f}",
}
ASYNCHRONOUS = [
    *("allreduce", "grouped_allreduce", "allgather", "grouped_allgather", "broadcast", "alltoall"),
    *("reducescatter", "grouped_reducescatter"),
]


IN_A_SET = "one_stays_away_from_a_set"  # of two of three ranks
WARNED_OF = {
    "other_names": ("allgather.of.0", "of.1"),
    "one_stays_away": ("away.",),
    IN_A_SET: ("of.the.tail",),
}


@pytest.mark.slow
@pytest.mark.parametrize("np", [2, 3])
@pytest.mark.checks_of(but=(IN_A_SET,))
def test_stalls(np: int, check: Check) -> None:
    run_and_expect_warnings(check, np)


@pytest.mark.slow
@pytest.mark.checks_of(only=(IN_A_SET,))
def test_stall_in_a_set(check: Check) -> None:
    run_and_expect_warnings(check, 3)


def run_and_expect_warnings(check: Check, np: int) -> None:
    run_check(check, np, env=ENVIRONMENT)
    for what in WARNED_OF.get(check.id, ()):
        wait_until(functools.partial(is_warned_of, what), LATEST_S, f"no warning names {what}", output)


def is_warned_of(what: str) -> bool:
    return any("did not submit" in line and what in line for line in output().splitlines())


def begin(operation: str, name: str, process_set: object = None) -> int:
    arguments: dict[str, object] = {} if process_set is None else {"process_set": process_set}
    if operation == "broadcast":
        arguments["root_rank"] = hvd.size() - 1
    tensors = [rows()] if operation.startswith("grouped") else rows()
    handle: int = getattr(hvd, f"{operation}_async")(tensors, name=name, **arguments)
    return handle


def expect_given_up(handle: int, name: str, since: float, missing: str) -> None:
    try:
        hvd.synchronize(handle)
    except hvd.HorovodInternalError as error:
        waited = time.monotonic() - since
        assert waited > GIVEN_UP_S * 0.9, f"{name}: given up after {waited:.1f} s"
        expect_within(LATEST_S, waited, name)
        parts = (f"'{name}'", f"{missing} did not submit", "ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS")
        expect_parts(str(error), *parts)
    else:
        raise AssertionError(f"{name}: no error")


def ranks_text(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def together(ranks: Meeting, event: str) -> None:
    """Waits for all ranks without Roundelay, which would soon give a rank up that was held up."""
    ranks.tell(event)
    ranks.wait_for(event, *range(hvd.size()))


def check_other_names() -> None:
    """Every operation, under a name of each rank's own."""
    with meeting() as ranks:
        since = time.monotonic()
        names = {operation: f"{operation}.of.{hvd.rank()}" for operation in ASYNCHRONOUS}
        handles = {operation: begin(operation, name) for operation, name in names.items()}
        others = ranks_text([rank for rank in range(hvd.size()) if rank != hvd.rank()])
        for operation, handle in handles.items():
            expect_given_up(handle, names[operation], since, others)
        together(ranks, "over")
    expect_the_next_works("of.all")


def check_one_stays_away() -> None:
    """A rank that comes late to a failed operation gets the same error at once."""
    last = hvd.size() - 1
    with meeting() as ranks:
        since = time.monotonic()
        if hvd.rank() != last:
            handles = {operation: begin(operation, f"away.{operation}") for operation in ASYNCHRONOUS}
            for operation, handle in handles.items():
                expect_given_up(handle, f"away.{operation}", since, f"rank {last}")
            ranks.tell("given up")
        else:
            ranks.wait_for("given up", *range(last))
            waits = []
            for operation in ASYNCHRONOUS:
                late = time.monotonic()
                with pytest.raises(hvd.HorovodInternalError, match=f"rank {last} did not submit") as raised:
                    hvd.synchronize(begin(operation, f"away.{operation}"))
                assert not isinstance(raised.value, MismatchError)
                waits.append(time.monotonic() - late)
            assert min(waits) < GIVEN_UP_S / 2, waits  # load may stretch some of them
        together(ranks, "over")
    expect_the_next_works("away.allgather")


def check_one_stays_away_from_a_set() -> None:
    """The world's operations go on meanwhile."""
    tail = hvd.add_process_set(list(range(1, hvd.size())))
    with meeting() as ranks:
        since = time.monotonic()
        handle = begin("allreduce", "of.the.tail", tail) if hvd.rank() == 1 else None
        for _ in range(10):
            expect_the_next_works("meanwhile")
        if handle is not None:
            expect_given_up(handle, "of.the.tail", since, f"rank {hvd.size() - 1}")
        together(ranks, "over")
    expect_the_next_works("meanwhile")
    assert hvd.remove_process_set(tail)


def check_one_stays_away_from_a_barrier() -> None:
    """Unnamed: a rank that comes late ends the failed use, then all are in step."""
    with meeting() as ranks:  # ends with a barrier
        if hvd.rank() == 0:
            ranks.wait_for("given up", *range(1, hvd.size()))
        with pytest.raises(hvd.HorovodInternalError, match="rank 0 did not submit"):
            hvd.barrier()
        together(ranks, "given up")
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2
