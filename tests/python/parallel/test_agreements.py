"""The core's agreements: ranks merge small values, negotiated and under a locked schedule."""

from __future__ import annotations

import os
import struct
from itertools import accumulate
from typing import NamedTuple

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay import _core
from roundelay._core import Merge
from roundelay.errors import HorovodInternalError, MismatchError

LOCKS = os.environ.get("ROUNDELAY_SCHEDULE_LOCK") != "0"
Fields = list[tuple[Merge, bytes]]


@pytest.mark.parametrize("np", [1, 2, 3])
def test_agreements(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.parametrize("np", [2])
@pytest.mark.slow
def test_without_a_schedule_lock(np: int, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_SCHEDULE_LOCK": "0"})


class _Agreed(NamedTuple):
    values: list[bytes]  # one for each field
    differences: list[tuple[int, tuple[int, bytes], tuple[int, bytes]]]
    absent: list[int]


def _agree(name: str, fields: Fields, root: int = -1, process_set: int = 0) -> _Agreed:
    agreed = _core.agree(name, fields, root, process_set)
    ends = list(accumulate(len(value) for _, value in fields))
    values = [agreed.values[end - len(value) : end] for end, (_, value) in zip(ends, fields, strict=True)]
    assert len(agreed.values) == ends[-1]
    return _Agreed(values, agreed.differences, agreed.absent)


def check_every_merge() -> None:
    rank, last = hvd.rank(), hvd.size() - 1
    for step in range(20):
        agreed = _agree(
            "all",
            [
                (Merge.EQUAL, b"same"),
                (Merge.AND, bytes([255 - (1 << rank)])),
                (Merge.OR, bytes([1 << rank, step])),
                (Merge.MAX, bytes([200 + rank, step])),
                (Merge.ROOT, bytes([rank, step])),
                (Merge.MAX, b""),
                (Merge.SUM, struct.pack("2d", rank, 0.5 + step)),
            ],
            root=last,
        )
        every = (1 << hvd.size()) - 1
        assert agreed.values == [
            b"same",
            bytes([255 - every]),
            bytes([every, step]),
            bytes([200 + last, step]),
            bytes([last, step]),
            b"",
            struct.pack("2d", sum(range(hvd.size())), hvd.size() * (0.5 + step)),
        ]
        assert agreed.differences == []
        assert agreed.absent == []


def check_a_difference_names_both_ranks() -> None:
    last = hvd.size() - 1
    value = b"other" if hvd.rank() == last else b"usual"
    for _ in range(3):
        agreed = _agree("differ", [(Merge.OR, b"\0"), (Merge.EQUAL, value)])
        assert agreed.values == [b"\0", b"other" if last == 0 else b"usual"]
        assert agreed.differences == ([(1, (0, b"usual"), (last, b"other"))] if last else [])


def check_ranks_that_have_joined_are_absent() -> None:
    rank = hvd.rank()
    for step in range(3 + rank):
        first = max(0, step - 2)  # lower ranks have joined
        agreed = _agree("uneven", [(Merge.EQUAL, bytes([rank])), (Merge.ROOT, b"r")], root=0)
        assert agreed.values == [bytes([first]), b"r" if first == 0 else b"\0"]
        assert agreed.absent == list(range(first))
    hvd.join()
    assert _agree("uneven", [(Merge.EQUAL, b"0"), (Merge.ROOT, b"r")], root=0).values == [b"0", b"r"]


@needs_ranks(3)
def check_a_set_agrees_alone() -> None:
    some = hvd.add_process_set([0, 2])
    number = some.process_set_id
    assert number is not None
    if some.included():
        agreed = _agree("set", [(Merge.EQUAL, bytes([hvd.rank()]))], process_set=number)
        assert agreed.differences == [(0, (0, b"\0"), (2, b"\2"))]
    hvd.remove_process_set(some)


def check_wrong_calls_are_errors_on_all_ranks() -> None:
    with pytest.raises(ValueError, match="256 fields; 255 are possible"):
        _agree("fields", [(Merge.OR, b"")] * 256)
    with pytest.raises(ValueError, match="1048577 bytes; 1048576 are possible"):
        _agree("bytes", [(Merge.OR, bytes(2**20 + 1))])
    with pytest.raises(ValueError, match="has the root -1, which is not in the process set"):
        _agree("root", [(Merge.ROOT, b"r")])
    if hvd.size() == 1:
        return
    if hvd.rank() == 0:
        with pytest.raises(ValueError, match=f"has the root {hvd.size()}, which"):
            _agree("one", [(Merge.ROOT, b"r")], root=hvd.size())
    else:
        with pytest.raises(HorovodInternalError, match=f"rank 0: .*has the root {hvd.size()}, which"):
            _agree("one", [(Merge.ROOT, b"r")], root=0)
    length = 1 if hvd.rank() == 0 else 2
    with pytest.raises(MismatchError, match=r"field 0 \(max\) of 1 bytes, rank \d has field 0 \(max\) of 2"):
        _agree("length", [(Merge.MAX, bytes(length))])


def check_values_that_change_end_no_lock() -> None:
    hvd.shutdown()
    hvd.init()
    tensor = torch.ones(8)
    work, after = {}, {}
    for step in range(100):
        if step == 40:
            work = hvd.stats()
        if step == 90:  # no rank is at the end, where a peer that goes on ends the lock
            after = hvd.stats()
        hvd.allreduce(tensor, name="tensor", op=hvd.Sum)
        fields = [(Merge.MAX, bytes([step, hvd.rank(), *bytes(300)])), (Merge.EQUAL, bytes([step]))]
        agreed = _agree("step", fields)
        assert agreed.values == [bytes([step, hvd.size() - 1, *bytes(300)]), bytes([step])]
    same = all(after[name] == work[name] for name in ("schedule_locks", "schedule_unlocks"))
    if LOCKS and same and work["schedule_locks"] > work["schedule_unlocks"]:  # locked in all 50 steps
        assert after["locked_operations"] - work["locked_operations"] == 100
        # Not all messages: rank 0 may still answer the pings by which its clock is measured after init.
        assert [after[name] - work[name] for name in ("reports_sent", "orders_given")] == [0, 0]
    if not LOCKS:
        assert after["locked_operations"] == 0
