"""The launcher, with agents that a program of the test starts."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path

import pytest

from ranks import PROGRAMS, ROOT
from roundelay.run.agent import agent, protocol
from roundelay.run.launcher import deadlines
from roundelay.run.launcher.connections import Listener
from roundelay.run.launcher.launcher import Launcher, Settings
from roundelay.run.launcher.output import Output
from roundelay.run.modes.mpirun import MpirunMode
from roundelay.run.modes.own import OwnMode

PATIENCE_S = 60.0


def job(gate: Path, *programs: str) -> Launcher:
    """Two ranks. Rank 1 starts when the gate opens."""
    listener = Listener([])
    output = Output(2, io.BytesIO(), io.BytesIO(), None)
    command = [sys.executable, str(PROGRAMS / "two_agents.py"), agent.__file__, str(gate), *programs]
    environment = {**os.environ, protocol.ADDRESS: listener.address, protocol.SECRET: listener.secret.hex()}
    settings = Settings(2, PATIENCE_S, False, OwnMode(), "", print)
    return Launcher(command, environment, listener, output, settings)


def test_a_rank_that_calls_in_late_hears_what_the_others_were_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    late = job(gate, "exit 3", "exec sleep 60")
    give = late._ranks.order

    def order_and_open(order: bytes) -> None:
        give(order)
        if order == protocol.SIGNAL + bytes([signal.SIGTERM]):
            gate.write_text("")

    monkeypatch.setattr(late._ranks, "order", order_and_open)
    monkeypatch.setattr(deadlines, "KILL_AFTER_S", PATIENCE_S)  # SIGKILL must not end rank 1
    result = late.run()
    assert result.status == 3
    assert result.text.startswith("rank 0 ")
    endings = [(end.rank, end.returncode, end.stopped) for end in late.ranks.endings]
    assert endings == [(0, 3, False), (1, -signal.SIGTERM, True)]


def test_the_rank_that_another_one_has_lost_gets_longer_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be writing its traceback, and is the one to name."""
    gate = tmp_path / "gate"
    gate.touch()  # open
    lost = job(gate, "echo 'HorovodInternalError: rank 1 is gone' >&2; exit 1", "sleep 2; exit 3")
    for grace in ("LOST_GRACE_S", "KILL_AFTER_S"):
        monkeypatch.setattr(deadlines, grace, PATIENCE_S)
    result = lost.run()
    assert result.status == 3
    assert result.text.startswith("rank 1 ")


def test_a_reset_connection_is_named_under_mpirun_too(tmp_path: Path) -> None:
    listener = Listener(["127.0.0.1"])
    known = tmp_path / "known"  # the launcher has heard of the rank
    script = f"while [ ! -e {known} ]; do sleep 0.01; done; kill -9 $PPID; exec sleep 60"
    command = [sys.executable, str(PROGRAMS / "resetting_agent.py"), script]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "python"),
        "ROUNDELAY_RUN_RANK": "0",
        protocol.ADDRESS: listener.address,
        protocol.SECRET: listener.secret.hex(),
    }
    output = Output(1, io.BytesIO(), io.BytesIO(), None)
    reset = Launcher(
        command,
        environment,
        listener,
        output,
        Settings(1, PATIENCE_S, True, MpirunMode(), "", lambda _: known.touch()),
    )
    result = reset.run()
    assert result.status == 137
    assert result.text.startswith("rank 0 (pid ")
    assert result.text.endswith(" failed first: the connection to its host broke: Connection reset by peer")
