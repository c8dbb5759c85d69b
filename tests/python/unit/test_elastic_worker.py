"""The launcher's process of an elastic worker: its end is always told."""

from __future__ import annotations

import errno
import io
from types import SimpleNamespace
from typing import Any

import pytest

from roundelay.run.elastic.worker import WorkerProcess


@pytest.mark.parametrize("error", [OSError(errno.EBADF, "closed"), BrokenPipeError(), ValueError("closed")])
def test_a_worker_that_is_closed_while_it_gets_its_plan(error: Exception) -> None:
    def write(_: Any) -> int:
        raise error

    process = SimpleNamespace(
        stdin=SimpleNamespace(write=write),
        stdout=io.BytesIO(b""),
        stderr=io.BytesIO(b"there is no plan\n"),
        wait=lambda: 1,
    )
    worker: Any = object.__new__(WorkerProcess)
    worker.number, worker.host, worker._process = 3, "here", process
    ends: list[tuple[int, str]] = []
    worker._watch(b"words", lambda *end: ends.append(end))
    assert ends == [(3, "here cannot start a rank: there is no plan")]
