"""Once its part of an allreduce is done a rank may do anything, also nothing: the others still finish theirs.

MPI moves bytes only while its functions are called: a rank that left with a message half delivered would
strand its peer. The ranks tell each other through files that they are done, so nobody calls MPI meanwhile.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest
import torch

import roundelay.torch as hvd
from in_time import TooLateError
from ranks import Check, run_check

NP = [2, 3]
PATIENCE_S = 60.0


@pytest.mark.parametrize("np", NP)
def test_stragglers(np: int, check: Check) -> None:
    run_check(check, np)


def check_nobody_is_stranded() -> None:
    job = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    for elements in [1 << 10, 1 << 16, 1 << 20, 25 << 20]:
        for turn in range(4):
            tensor = torch.ones(elements, dtype=torch.float16)
            hvd.allreduce_(tensor, op=hvd.Sum, name=f"stranded.{elements}")
            marks = [Path(job) / f"{elements}.{turn}.{rank}" for rank in range(hvd.size())]
            marks[hvd.rank()].touch()
            end = time.monotonic() + PATIENCE_S
            while not all(mark.exists() for mark in marks):
                if time.monotonic() > end:
                    raise TooLateError(f"{elements} elements, turn {turn}: a rank is still inside")
                os.sched_yield()
            assert tensor[0] == tensor[-1] == hvd.size()
