"""The launcher, with agents that a program of the test starts."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path

import pytest

from roundelay.run import agent, launcher
from roundelay.run.launcher import Launcher, Settings
from roundelay.run.link import Listener
from roundelay.run.output import Output

# Starts rank 0, and rank 1 when the gate opens. Ends when both have ended.
STARTER = """
import os, subprocess, sys
def agent(rank, program):
    return subprocess.Popen(
        [sys.executable, "-I", "-S", sys.argv[1], "--", "sh", "-c", program],
        env={**os.environ, "ROUNDELAY_RUN_RANK": str(rank)},
    )
first = agent(0, "exit 3")
with open(sys.argv[2]) as gate: gate.read()
second = agent(1, "exec sleep 60")
sys.exit(first.wait() or second.wait())
"""


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """A job whose rank 1 calls in when rank 0 has failed and the ranks have been told to end."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    listener = Listener([])
    output = Output(2, io.BytesIO(), io.BytesIO(), None)
    command = [sys.executable, "-c", STARTER, agent.__file__, str(gate)]
    environment = {**os.environ, agent.ADDRESS: listener.address, agent.TOKEN: listener.token.hex()}
    settings = Settings(2, 60.0, False, "starter", "", print)
    made = Launcher(command, environment, listener, output, settings)
    give = made._order

    def order_and_go_on(order: bytes) -> None:
        give(order)
        if order == agent.SIGNAL + bytes([signal.SIGTERM]):
            gate.write_text("")

    monkeypatch.setattr(made, "_order", order_and_go_on)
    return made


def test_a_rank_that_calls_in_late_hears_what_the_others_were_told(
    late: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "KILL_AFTER_S", 60.0)  # not by this
    result = late.run()
    assert result.status == 3
    assert result.text.startswith("rank 0 ")
    assert [(end.rank, end.returncode, end.stopped) for end in late.endings] == [
        (0, 3, False),
        (1, -signal.SIGTERM, True),
    ]
