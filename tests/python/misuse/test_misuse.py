"""The misuse table on several ranks: the documented error, soon, everywhere; the next operation works."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

import roundelay.torch as hvd
from misuse.expect import Faults, error_of, expect_parts, expect_the_next_works
from misuse.table import OPERATIONS, Mistake, disagreements, mistakes, rows
from ranks import Check, mpirun, needs_ranks, run_check
from roundelay.errors import MismatchError

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

ENVIRONMENT = {
    "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    "ROUNDELAY_STALL_CHECK_TIME_SECONDS": "30",  # what would hang becomes an error
    "ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS": "40",
}


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_misuse(np: int, check: Check) -> None:
    run_check(check, np, env=ENVIRONMENT)


def last() -> bool:
    return hvd.rank() == hvd.size() - 1


def expect_mistake(case: Mistake, name: str | None, everyone: bool) -> None:
    """Of all ranks, or of the last one alone: then the others get its text."""
    parts = [part.format(size=hvd.size()) for part in case.says]
    if name is not None and case.shared:
        parts.append(f"'{name}'")
    if everyone or last():
        expect_parts(error_of(lambda: case.wrong(name), ValueError), *parts)
    else:
        text = error_of(lambda: case.right(name), hvd.HorovodInternalError)
        expect_parts(text, f"rank {hvd.size() - 1}: ", *parts)


def check_the_table_is_large() -> None:
    table = [case.id for case in mistakes()] + [case.id for case in disagreements()]
    assert len(set(table)) == len(table)
    assert len(table) >= 80
    if hvd.rank() == 0:
        print(f"{len(table)} cases")


def check_mistakes_of_all_ranks() -> None:
    torch.ones(1, device="meta").neg()  # PyTorch imports 800 modules here, before any clock starts
    faults = Faults()
    for case in mistakes():
        hvd.barrier()
        with faults.of(f"{case.id} on all ranks"):
            expect_mistake(case, case.id, everyone=True)
        with faults.of(f"after {case.id} on all ranks"):
            expect_the_next_works(case.id)
    faults.expect_none()


def check_mistakes_of_one_rank() -> None:
    faults = Faults()
    for case in mistakes():
        if hvd.size() == 1 or not case.shared:
            continue
        for name in (case.id, None):
            hvd.barrier()
            with faults.of(f"{case.id} on one rank, name {name}"):
                expect_mistake(case, name, everyone=False)
            with faults.of(f"after {case.id} on one rank, name {name}"):
                expect_the_next_works(name)
                case.right(name)
    faults.expect_none()


def check_disagreements() -> None:
    faults = Faults()
    texts = []
    for case in disagreements():
        if hvd.size() == 1:
            continue
        hvd.barrier()
        with faults.of(case.id):
            use = case.last if last() else case.others
            text = error_of(lambda use=use, name=case.id: use(name), MismatchError)  # type: ignore[misc]
            texts.append(text)
            operations = case.operation.split("|")
            assert any(text.startswith(f"Mismatched {name} of '{case.id}': ") for name in operations), text
            expect_parts(text, f"rank {hvd.size() - 1} has {case.last_has}", f" has {case.others_have}")
        with faults.of(f"after {case.id}"):
            expect_the_next_works(case.id)
    faults.expect_none()
    assert hvd.broadcast_object(texts, 0) == texts, "the text must be the same on all ranks"


@needs_ranks(2)
def check_disagreements_about_sparse_tensors() -> None:
    """They go as other operations: each has a text of its own."""
    faults = Faults()
    wider, eye = torch.eye(3, 4).to_sparse(), torch.eye(3).to_sparse()
    cases = {
        "shape": (wider if last() else eye, hvd.Sum, ("shapes", "[3, 4]", "[3, 3]")),
        "dtype": (eye.double() if last() else eye, hvd.Sum, ("dtype", "float64", "float32")),
        "op": (eye, hvd.Sum if last() else hvd.Average, ("Sum", "Average")),
    }
    for kind, (tensor, op, says) in cases.items():
        hvd.barrier()
        with faults.of(f"sparse-{kind}"):
            begin = partial(hvd.sparse_allreduce_async, tensor, f"sparse.{kind}", op)
            text = error_of(lambda begin=begin: begin()(), MismatchError)  # type: ignore[misc]
            expect_parts(text, f"'sparse.{kind}'", f"{hvd.size() - 1}", *says)
        with faults.of(f"after sparse-{kind}"):
            expect_the_next_works(f"sparse.{kind}")
    faults.expect_none()


class Twice:
    """A name in flight used again: refused in the call; the first goes on; the peers' second use fails."""

    def __init__(self, operation: str, by: Callable[[int], bool]) -> None:
        self.operation, self.name, self.is_by = operation, f"twice.{operation}", by(hvd.rank())

    def _begin(self) -> int:
        begin = getattr(hvd, f"{self.operation}_async")
        grouped = self.operation.startswith("grouped")
        arguments = {"root_rank": 0} if self.operation == "broadcast" else {}
        handle: int = begin([rows()] if grouped else rows(), name=self.name, **arguments)
        return handle

    def run(self, faults: Faults) -> None:
        hvd.barrier()
        first = None
        if hvd.rank() != 0:  # rank 0 comes later: until then it is in flight
            first = self._begin()
            if self.is_by:
                with faults.of(f"{self.name} in the call"):
                    expect_parts(error_of(self._begin, ValueError), f"'{self.name}'", "still in flight")
        hvd.barrier()
        first = self._begin() if first is None else first
        with faults.of(f"{self.name}, the first use"):
            assert hvd.synchronize(first) is not None
        if not self.is_by:
            with faults.of(f"{self.name}, the peers' second use"):
                text = error_of(lambda: hvd.synchronize(self._begin()), hvd.HorovodInternalError)
                expect_parts(text, f"'{self.name}'", "still in flight", "rank ")
        with faults.of(f"after {self.name}"):
            hvd.synchronize(self._begin())


ASYNCHRONOUS = [
    *("allreduce", "grouped_allreduce", "allgather", "grouped_allgather", "broadcast", "alltoall"),
    *("reducescatter", "grouped_reducescatter"),
]


def check_names_in_flight() -> None:
    faults = Faults()
    for operation in ASYNCHRONOUS if hvd.size() > 1 else []:
        Twice(operation, by=lambda rank: rank == hvd.size() - 1).run(faults)
        Twice(operation, by=lambda rank: rank > 0).run(faults)
    faults.expect_none()


def use(operation: str, name: str) -> Callable[[], object]:
    return lambda: OPERATIONS[operation](rows(), name)


@needs_ranks(2)
def check_a_name_in_flight_of_another_operation() -> None:
    """Grouped or not, of whichever kind: nothing of the refused one is left."""
    if hvd.rank() > 0:
        first = hvd.allreduce_async(torch.ones(3), name="shared", op=hvd.Sum)
        for operation in ("grouped_allreduce", "allgather", "grouped_allgather", "broadcast"):
            text = error_of(use(operation, "shared"), ValueError)
            expect_parts(text, "'shared'", "still in flight")
    hvd.barrier()
    if hvd.rank() == 0:
        first = hvd.allreduce_async(torch.ones(3), name="shared", op=hvd.Sum)
    assert hvd.synchronize(first).tolist() == [hvd.size()] * 3
    for operation in ("grouped_allreduce", "allgather", "grouped_allgather", "broadcast"):
        if hvd.rank() == 0:  # its second to fifth uses
            error_of(use(operation, "shared"), hvd.HorovodInternalError)
    hvd.barrier()
    expect_the_next_works("shared")


def check_groups_of_nothing() -> None:
    """No mistake: nothing is sent."""
    for grouped in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
        assert grouped([]) == []


def check_handles() -> None:
    handle = hvd.allreduce_async(torch.ones(3))
    assert hvd.synchronize(handle) is not None
    for wrong in (handle, 123456789, -1):
        for function in (hvd.synchronize, hvd.poll):
            error = error_of(lambda function=function, wrong=wrong: function(wrong), ValueError)  # type: ignore[misc]
            expect_parts(error, "handle", str(wrong))


def check_use_after_shutdown() -> None:
    hvd.barrier()
    hvd.shutdown()
    faults = Faults()
    for operation, call in OPERATIONS.items():
        with faults.of(f"{operation} after shutdown"):
            # An alltoall asks for the size first, as Horovod's does; so does rows(), which is in groups.
            asks = operation.startswith(("alltoall", "grouped"))
            kind = ValueError if asks else hvd.HorovodInternalError
            text = error_of(lambda call=call: call(torch.ones(4), "late"), kind)  # type: ignore[misc]
            expect_parts(text, "has not been initialized", "hvd.init()")
    hvd.init()
    faults.expect_none()
    expect_the_next_works("late")
