"""`roundelay.run` with elastic arguments."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import roundelay
from hosts_here import local_ssh
from roundelay.run.function import launcher_process


def train(first: str) -> tuple[int, int]:
    """Trains until a rank was lost; the first rank 1 is it. Returns its rank and size."""
    import torch

    import roundelay.torch as hvd

    hvd.init()
    state = hvd.elastic.ObjectState(steps=0)

    @hvd.elastic.run
    def steps(state: Any) -> tuple[int, int]:
        while state.steps < 10 or not Path(first).exists():
            if hvd.rank() == 1 and state.steps == 5 and not Path(first).exists():
                Path(first).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.allreduce(torch.ones(1), name="step")
            state.steps += 1
            state.commit()
        return hvd.rank(), hvd.size()

    result: tuple[int, int] = steps(state)
    return result


def fail() -> None:
    """Raises."""
    raise KeyError("a bug")


def test_the_last_generations_values_are_returned_by_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = roundelay.run(train, (str(tmp_path / "first"),), np=2, min_np=1, max_np=2)
    assert values == [(rank, len(values)) for rank in range(len(values))]
    assert "killed by SIGKILL" in capsys.readouterr().err
    assert (tmp_path / "first").exists()


def hang() -> int:
    """Returns its rank, but the process of rank 1 does not end."""
    import roundelay.torch as hvd

    hvd.init()
    if hvd.rank() == 1:
        threading.Thread(target=time.sleep, args=(600,)).start()
    return hvd.rank()


def test_values_are_there_although_a_process_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_process, "END_GRACE_S", 1.0)  # on a busy machine rank 0 may need longer too
    who = r"(worker 0 \(told to end\), )?worker 1 \(told to end\)$"
    with pytest.warns(RuntimeWarning, match=f"not every rank ended well by itself: {who}"):
        assert roundelay.run(hang, np=2, min_np=1) == [0, 1]


@pytest.mark.nightly
def test_the_function_reaches_other_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{local_ssh(tmp_path)}:{os.environ['PATH']}")
    hosts = "localhost:1,127.0.2.2:1"
    values = roundelay.run(train, (str(tmp_path / "first"),), hosts=hosts, np=2, min_np=1)
    assert values == [(rank, len(values)) for rank in range(len(values))]
    assert (tmp_path / "first").exists()


def test_an_exception_that_ends_the_job_is_raised() -> None:
    with pytest.raises(KeyError, match="a bug") as raised:
        roundelay.run(fail, min_np=1)
    assert str(raised.value.__cause__).startswith("\nworker ")


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="none may be less than the one before"):
        roundelay.run(fail, np=2, min_np=3)
