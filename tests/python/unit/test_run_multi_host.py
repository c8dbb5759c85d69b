"""The hosts' answers, in whatever order they and the hosts' ends come."""

from __future__ import annotations

import queue
import shlex
from typing import Any, cast

import pytest

from roundelay.run.starter import several_hosts
from roundelay.run.starter.on_host import ANSWER
from roundelay.run.starter.several_hosts import Event


class Answering:
    """A host that has not answered."""

    def __init__(self, name: str) -> None:
        self.reason = f"{name} does not answer in time"

    def why_not(self) -> str:
        return self.reason


class Script:
    """Events. Each event happens when it is taken, and leaves its host with a reason."""

    def __init__(self, *events: tuple[Answering, Event, str]) -> None:
        self.events = list(events)

    def get(self, timeout: float) -> tuple[Answering, Event]:
        if not self.events:
            raise queue.Empty
        host, what, reason = self.events.pop(0)
        host.reason = reason
        return host, what


def test_a_host_that_answers_and_ends_hides_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    lost, slow = Answering("lost"), Answering("slow")
    script = Script((lost, Event.ANSWERED, ""), (lost, Event.ENDED, "lost ended"), (slow, Event.ANSWERED, ""))
    assert not several_hosts.all_answer(cast(Any, [lost, slow]), cast(Any, script), 60.0)
    assert capfd.readouterr().err == "lost ended\n"


def test_a_host_that_ends_after_its_answer_is_named() -> None:
    script = f"read -r plan; echo {shlex.quote(ANSWER.decode())}'{{}}'; echo broken pipe >&2; exit 255"
    ssh = ["sh", "-c", script]
    job = several_hosts.Job([("far", 1)], local=[], ssh=ssh, exports=[], interfaces=[], timeout=60.0)
    events: several_hosts.EventQueue = queue.SimpleQueue()
    host = several_hosts.HostProcess(0, job, ["true"], None, events)
    assert [events.get(timeout=60.0) for _ in range(2)] == [(host, Event.ANSWERED), (host, Event.ENDED)]
    why = "far ended before all hosts had answered: broken pipe; start the job again"
    assert host.why_not() == why
    host.end_input()
