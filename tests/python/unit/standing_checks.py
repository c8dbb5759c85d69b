"""Checks for test_ranks.py, which pass, fail, die or hang on purpose."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import torch

import roundelay.torch as hvd
from in_time import TooLateError

initialised: list[int] = []


def check_who() -> None:
    assert os.environ["ROUNDELAY_CYCLE_TIME"] == "2"
    Path(os.environ["FOLDER"], str(hvd.rank())).write_text(str(os.getpid()))


def check_no_check_was_before() -> None:
    initialised.append(1)
    assert initialised == [1]


def check_a_check_was_before() -> None:
    assert initialised == [1]


def check_environment() -> None:
    assert "FOLDER" not in os.environ


def check_sum() -> None:
    raise AssertionError(f"wrong on purpose on rank {hvd.rank()}")


def check_sum_on_rank_1() -> None:
    assert hvd.rank() == 0, "wrong on purpose"
    hvd.allreduce(torch.ones(1))


def check_death() -> None:
    if hvd.rank() == 1:
        os._exit(7)
    hvd.allreduce(torch.ones(1))


def check_time() -> None:
    raise TooLateError("late on purpose")


def never_ends() -> None:
    Path(os.environ["FOLDER"], str(os.getpid())).touch()
    threading.Event().wait()


def check_hang() -> None:
    never_ends()
