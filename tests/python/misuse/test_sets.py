"""Process sets used wrongly: by who is not in them, when they are gone, made or removed differently."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from misuse.expect import Faults, error_of, expect_parts, expect_the_next_works
from misuse.table import OPERATIONS
from ranks import Check, mpirun, run_check
from roundelay.errors import MismatchError

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

ENVIRONMENT = {
    "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    "ROUNDELAY_STALL_CHECK_TIME_SECONDS": "30",
    "ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS": "40",
}


@pytest.mark.parametrize("np", [2, 3, 4])
def test_sets(np: int, check: Check) -> None:
    run_check(check, np, env=ENVIRONMENT)


def uses_of(process_set: Any) -> dict[str, Callable[[], object]]:
    """Every operation on the set; two elements for each rank, the root is the highest rank."""
    tensor = torch.ones(2 * hvd.size() * (hvd.size() - 1))
    uses: dict[str, Callable[[], object]] = {"barrier": lambda: hvd.barrier(process_set=process_set)}
    for operation, call in OPERATIONS.items():
        more = {"root_rank": hvd.size() - 1} if operation.startswith("broadcast") else {}
        uses[operation] = lambda call=call, more=more: call(  # type: ignore[misc]
            tensor.clone(), "of.set", process_set=process_set, **more
        )
    return uses


def check_callers_outside() -> None:
    """They get a ValueError; the members' operation of the same name is not harmed."""
    tail = hvd.add_process_set(list(range(1, hvd.size())))
    faults = Faults()
    for operation, call in uses_of(tail).items():
        hvd.barrier()
        with faults.of(f"{operation} by an outsider"):
            if hvd.rank() == 0:
                expect_parts(error_of(call, ValueError), "rank 0", "not", "set")
            else:
                call()
    hvd.barrier()
    assert hvd.remove_process_set(tail)
    faults.expect_none()
    expect_the_next_works("of.set")


def check_a_root_outside() -> None:
    tail = hvd.add_process_set(list(range(1, hvd.size())))
    if hvd.rank() > 0:
        for name in ("broadcast", "broadcast_"):
            call = partial(getattr(hvd, name), torch.ones(2), 0, name="rooted", process_set=tail)
            text = error_of(call, ValueError)
            expect_parts(text, "'rooted'", "root_rank is 0", "set")
        assert hvd.broadcast(torch.ones(2), 1, name="rooted", process_set=tail).tolist() == [1, 1]
    assert hvd.remove_process_set(tail)


def check_removed_sets() -> None:
    tail = hvd.add_process_set(list(range(1, hvd.size())))
    assert hvd.remove_process_set(tail)
    assert tail.process_set_id is None
    faults = Faults()
    for operation, call in uses_of(tail).items():
        with faults.of(f"{operation} on a removed set"):
            expect_parts(error_of(call, ValueError), "removed", "add_process_set")
    with faults.of("removed twice"):
        assert hvd.remove_process_set(tail) is False
    faults.expect_none()
    expect_the_next_works("of.set")


def check_sets_that_cannot_be() -> None:
    faults = Faults()
    existing = hvd.add_process_set([0, hvd.size() - 1][: hvd.size()]) if hvd.size() > 2 else None
    wrong: dict[str, tuple[Any, tuple[str, ...]]] = {
        "of no ranks": ([], ("rank",)),
        "of a rank that is not": ([0, hvd.size()], (str(hvd.size()),)),
        "of a negative rank": ([-1, 0], ("-1",)),
        "of a rank twice": ([0, 0], ("differ",)),
        "of all ranks": (list(range(hvd.size())), ("already",)),
        "of text": ("01", ("rank",)),
        "of a number": (1, ("rank",)),
    }
    if existing is not None:
        wrong["that exists"] = ([0, hvd.size() - 1], ("already",))
    for kind, (ranks, says) in wrong.items():
        hvd.barrier()
        with faults.of(f"a set {kind}"):
            expect_parts(error_of(lambda ranks=ranks: hvd.add_process_set(ranks), ValueError), *says)  # type: ignore[misc]
        with faults.of(f"after a set {kind}"):
            expect_the_next_works(None)
    if existing is not None:
        assert hvd.remove_process_set(existing)
    faults.expect_none()


def check_the_global_set_stays() -> None:
    assert not hvd.remove_process_set(hvd.global_process_set)
    expect_the_next_works(None)


def check_one_rank_adds_a_set_that_cannot_be() -> None:
    last = hvd.rank() == hvd.size() - 1
    if last:
        text = error_of(lambda: hvd.add_process_set([-1]), ValueError)
    else:
        text = error_of(lambda: hvd.add_process_set([0]), hvd.HorovodInternalError)
        expect_parts(text, f"rank {hvd.size() - 1}: ")
    expect_parts(text, "negative")
    expect_the_next_works(None)


def check_ranks_add_different_sets() -> None:
    last = hvd.rank() == hvd.size() - 1
    text = error_of(lambda: hvd.add_process_set([1] if last else [0]), MismatchError)
    expect_parts(text, f"rank {hvd.size() - 1} has process set [1]", "has process set [0]")
    assert hvd.broadcast_object(text, 0) == text
    expect_the_next_works(None)


def check_ranks_remove_different_sets() -> None:
    sets = [hvd.add_process_set([rank]) for rank in range(2)]
    ids = [each.process_set_id for each in sets]
    last = hvd.rank() == hvd.size() - 1
    text = error_of(lambda: hvd.remove_process_set(sets[last]), MismatchError)
    expect_parts(text, f"rank {hvd.size() - 1} has removal of process set {ids[1]}", f"process set {ids[0]}")
    adds_instead = (
        (lambda: hvd.add_process_set([0, 1])) if last else (lambda: hvd.remove_process_set(sets[0]))
    )
    if hvd.size() > 2:
        text = error_of(adds_instead, MismatchError)
        expect_parts(text, "process set [0, 1]", f"removal of process set {ids[0]}")
    for each in sets:
        if each.included():
            assert hvd.allreduce(torch.ones(2), process_set=each).tolist() == [1, 1]
    assert all(hvd.remove_process_set(each) for each in sets)
    expect_the_next_works(None)
