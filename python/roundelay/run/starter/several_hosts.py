"""Starts the ranks on several hosts without MPI: in mpirun's place, `several_hosts.py JOB -- program ...`.

JOB is JSON, see class Job. Each host gets an on_host.py, over ssh, or directly where it is this host.
No rank starts before all hosts have answered. When this process ends, whatever the cause, so does the
input of all of them, and with it the ranks. Each host that fails gets one line on stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

if __name__ == "__main__":  # a plain script; -I keeps its own folder off the path, too
    sys.path.append(os.path.abspath(f"{__file__}/../../../.."))

from roundelay.run.agent.protocol import ADDRESS, FAILED, FUNCTION
from roundelay.run.starter import on_host
from roundelay.run.starter.local_ranks import HostRanks, on_signals
from roundelay.run.starter.on_host import ANSWER, HostPlan
from roundelay.run.system.processes import die_with_parent, exit_status

_SSH_FAILED = 255
_ENDING_S = 2.0  # hosts have this long to end their ranks after their input has ended


@dataclass(frozen=True)
class Job:
    """The content of JOB."""

    hosts: list[tuple[str, int]]  # name and ranks, in the order of ranks
    local: list[str]  # the names of this machine among them
    ssh: list[str]  # the command's first words
    exports: list[str]  # the names of variables to send to the hosts
    interfaces: list[str]
    timeout: float  # seconds in which all hosts must answer

    def to_argument(self) -> str:
        """Returns JOB."""
        return json.dumps(asdict(self))


class Event(Enum):
    """A host has done this."""

    ANSWERED, ENDED = range(2)


# The events in their order; None asks this process to end. (Signal handlers may only put into a
# SimpleQueue.)
EventQueue = queue.SimpleQueue[tuple["HostProcess", Event] | None]


class HostProcess:
    """One host: the process that starts its ranks, here or at the other end of ssh."""

    def __init__(
        self, index: int, job: Job, program: list[str], function: bytes | None, events: EventQueue
    ) -> None:
        self.index = index
        self.name, self.ranks = job.hosts[index]
        self.answer: dict[str, Any] | None = None
        self._is_local = self.name in job.local
        self._last_line = ""
        self._function = function
        start = [sys.executable, "-I", "-S", on_host.__file__]
        self.process = subprocess.Popen(
            start if self._is_local else [*job.ssh, self.name, shlex.join(start)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(signal.SIGTERM),  # noqa: PLW1509  it only calls prctl
        )
        self._send(self._plan(job, program).to_line())
        self._errors = threading.Thread(target=self._read_errors, daemon=True)
        self._errors.start()
        threading.Thread(target=self._watch, args=(events,), daemon=True).start()
        self._sending: threading.Thread | None = None

    def _plan(self, job: Job, program: list[str]) -> HostPlan:
        others = [name for name, _ in job.hosts if name != self.name]
        places = os.environ.get(ADDRESS, "").partition(":")[2]
        launcher = [place.rpartition(":")[0] for place in places.split(",") if place]
        return HostPlan(
            environment={name: os.environ[name] for name in job.exports if name in os.environ},
            folder=os.getcwd(),
            program=program,
            ranks=self.ranks,
            interfaces=job.interfaces,
            facing=others if self._is_local else [*launcher, *others],
            serves=self.index == 0,
            function=None if self._function is None else len(self._function),
        )

    def _send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended; its status says why
            self.process.stdin.write(line)
            self.process.stdin.flush()

    def _watch(self, events: EventQueue) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(ANSWER) and self.answer is None:
                self.answer = json.loads(line[len(ANSWER) :])
                events.put((self, Event.ANSWERED))
        self.process.wait()
        events.put((self, Event.ENDED))

    def _read_errors(self) -> None:
        """Shows the host's lines after it has answered; keeps earlier lines for why_not()."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            text = line.decode(errors="replace").strip()
            if self.answer is not None and text:
                say(f"{self.name}: {text}")
            self._last_line = text or self._last_line

    def why_not(self) -> str:
        """Returns why the host cannot take part; "" if it can."""
        ended = self.process.poll() is not None
        if self.answer is not None:
            if "error" in self.answer:
                return f"{self.name}: {self.answer['error']}"
            if not ended:
                return ""
        cure = f"`ssh {self.name} true` must work without a password"
        if not ended:
            return f"{self.name} does not answer in time; {cure}"
        self._errors.join(timeout=1.0)
        said = self._last_line or f"exit status {self.process.returncode}"
        if self.answer is not None:
            return f"{self.name} ended before all hosts had answered: {said}; start the job again"
        if self.process.returncode == _SSH_FAILED and not self._is_local:
            return f"{self.name} cannot be reached: {said}; {cure}"
        return f"{self.name} cannot start ranks: {said}; Python and Roundelay must be where they are here"

    def go(self, ranks: HostRanks) -> None:
        """Lets the ranks start. A thread sends the function, if they call one, as it may be large."""
        words = json.dumps(asdict(ranks)).encode() + b"\n" + (self._function or b"")
        self._sending = threading.Thread(target=self._send, args=(words,), daemon=True)
        self._sending.start()

    def end_input(self) -> None:
        """Ends the host's input, and so its ranks."""
        assert self.process.stdin is not None
        if self._sending is not None and self._sending.is_alive():
            self.process.kill()  # the process does not read its input
            self._sending.join()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


def say(line: str) -> None:
    """Writes a line to stderr, in one write."""
    os.write(2, f"{line}\n".encode())


def all_answer(hosts: list[HostProcess], events: EventQueue, timeout: float) -> bool:
    """Waits until each host has answered or ended; says what is wrong. Returns whether all is well."""
    deadline = time.monotonic() + timeout
    silent = set(hosts)
    while silent:
        try:
            event = events.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if event is None:
            return False
        silent.discard(event[0])  # a host that ends after its answer has two events
    wrong = [reason for host in hosts if (reason := host.why_not())]
    for line in wrong:
        say(line)
    return not wrong


def ranks_of(hosts: list[HostProcess]) -> Iterator[HostRanks]:
    """Yields each host's ranks. They are numbered by host; all ranks connect to the first host."""
    assert hosts[0].answer is not None
    store, master_port = tuple(hosts[0].answer["store"]), hosts[0].answer["master_port"]
    first_rank, size = 0, sum(host.ranks for host in hosts)
    for host in hosts:
        yield HostRanks(first_rank, host.ranks, size, host.index, store, master_port)
        first_rank += host.ranks


def wait(hosts: list[HostProcess], events: EventQueue) -> int:
    """Waits until all hosts have ended, an agent cannot do its work, or this process is told to end.

    Returns the first exit status that is not 0.
    """
    first, left = 0, len(hosts)
    while left and (event := events.get()) is not None:
        host, what = event
        if what is not Event.ENDED:
            continue
        left -= 1
        first = first or exit_status(host.process.returncode)
        if host.process.returncode == _SSH_FAILED:
            say(f"{host.name}: the connection is lost")
        if host.process.returncode == FAILED:
            break
    return first


def end(hosts: list[HostProcess]) -> None:
    """Ends the hosts' input, then kills those that go on. Does not wait for hosts without answer."""
    for host in hosts:
        host.end_input()
        if host.answer is None:
            host.process.kill()
    deadline = time.monotonic() + _ENDING_S
    for host in hosts:
        try:
            host.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            host.process.kill()


def function() -> bytes | None:
    """Reads the function for the ranks from the launcher's file; None if they run a program."""
    path = os.environ.pop(FUNCTION, None)
    if path is None:
        return None
    with open(path, "rb") as payload:
        return payload.read()


def main() -> int:
    """Starts the ranks and waits for all of them; returns the first status that is not 0."""
    words = json.loads(sys.argv[1])
    job = Job(**{**words, "hosts": [tuple(host) for host in words["hosts"]]})
    events: EventQueue = queue.SimpleQueue()
    on_signals(lambda _: events.put(None))
    hosts: list[HostProcess] = []
    payload = function()
    try:
        for index in range(len(job.hosts)):
            hosts.append(HostProcess(index, job, sys.argv[3:], payload, events))
        if not all_answer(hosts, events, job.timeout):
            return 1
        for host, ranks in zip(hosts, ranks_of(hosts), strict=True):
            host.go(ranks)
        return wait(hosts, events)
    finally:
        end(hosts)


if __name__ == "__main__":
    sys.exit(main())
