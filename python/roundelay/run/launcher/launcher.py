"""Runs mpirun or a starter in its place (called mpirun here), and listens to the agents until every rank has
ended. Ends all ranks if one fails.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import IO

from roundelay.run.agent import protocol
from roundelay.run.launcher import deadlines
from roundelay.run.launcher.connections import Listener, Peer
from roundelay.run.launcher.deadlines import Deadlines
from roundelay.run.launcher.output import Output, Stream
from roundelay.run.launcher.ranks import Ranks
from roundelay.run.launcher.result import Ending, JobResult, Problem, is_victim, job_result, named
from roundelay.run.modes.mode import LaunchMode
from roundelay.run.system import signals
from roundelay.run.system.processes import die_with_parent, exit_status, how

Hello = dict[str, int | str | None]  # what an agent says first
_TICK_S = 0.1
_READER_GONE = (errno.EPIPE, errno.EIO)  # the reader of a pipe, or a terminal


@dataclass(frozen=True)
class Settings:
    """The settings of the launcher itself."""

    num_proc: int
    start_timeout: float  # seconds
    verbose: bool
    mode: LaunchMode  # what starts the ranks
    prefix: str  # begins the lines that this itself writes
    say: Callable[[str], None]  # shows a line of the launcher's own
    on_result: Callable[[int, bytes], None] | None = None  # takes a piece of a rank's reply


class Launcher:
    """Runs one job, from mpirun's start to the last process's end."""

    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        listener: Listener,
        output: Output,
        settings: Settings,
    ) -> None:
        self._command, self._environment = command, environment
        self._listener, self._output, self._settings = listener, output, settings
        self._selector = selectors.DefaultSelector()
        self._mpirun_output = Stream(settings.prefix.encode(), sys.stderr.buffer, None)
        self._held: list[bytes] = []  # mpirun's lines after a failure: shown only if mpirun itself failed
        self._ranks = Ranks()
        self._deadlines = Deadlines()
        self._interrupted_by: int | None = None
        self._problem: str | None = None
        self._dismissed = self._mute = False

    @property
    def ranks(self) -> Ranks:
        """What is known of the ranks."""
        return self._ranks

    def run(self) -> JobResult:
        """Runs the job to its end. Must be called on the main thread: it handles signals meanwhile."""
        handlers = signals.handle(signals.ENDING, self._on_signal)
        handlers |= signals.handle(signals.FORWARDED, self._forward)
        try:
            return self._run()
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler)

    def _run(self) -> JobResult:
        started = time.monotonic()
        mpirun = _start(self._command, self._environment)
        assert mpirun.stdout is not None
        for caller in self._listener.sockets:
            self._selector.register(caller, selectors.EVENT_READ, self._on_caller)
        self._selector.register(mpirun.stdout, selectors.EVENT_READ, self._on_mpirun_output)
        ended = os.pidfd_open(mpirun.pid)
        self._selector.register(ended, selectors.EVENT_READ, lambda _: None)
        while mpirun.poll() is None:
            self._step()
            self._advance(mpirun, started)
        self._selector.unregister(ended)
        os.close(ended)
        self._on_mpirun_output(mpirun.stdout)
        self._hear_the_last()
        mpirun.stdout.close()
        self._listener.close()
        return self._job_result(mpirun.returncode)

    def _hear_the_last(self) -> None:
        """Takes the agents' last frames after mpirun's end. It may end without them, when it lost a host.

        Then agents on other hosts still answer to KILL.
        """
        self._wait_for_endings()
        if self._ranks.running():
            self._ranks.order(protocol.KILL)
            self._wait_for_endings()
        for rank in list(self._ranks.peers):
            self._lose(rank, silent=True)

    def _wait_for_endings(self) -> None:
        """Listens until every rank has ended, for STARTER_GRACE_S at most."""
        deadline = time.monotonic() + deadlines.STARTER_GRACE_S
        while self._ranks.running() and time.monotonic() < deadline:
            self._step()

    def _job_result(self, mpirun_returncode: int) -> JobResult:
        if self._mute:
            if self._problem is not None:
                return JobResult(1, self._problem)
            return JobResult(128 + (self._interrupted_by or signal.SIGPIPE))
        problem = None if self._problem is None else Problem(self._problem, 1)
        if problem is None and mpirun_returncode != 0:
            problem = _starter_failed(self._settings.mode, mpirun_returncode, bool(self._mpirun_output.tail))
        result = job_result(
            self._ranks.endings,
            self._settings.num_proc,
            interrupted_by=self._interrupted_by,
            problem=problem,
            started_by=self._settings.mode.started_by,
        )
        if result.rank is None and result.status != 0 and self._interrupted_by is None:
            self._show(lambda: self._mpirun_output.write(b"".join(self._held), time.monotonic()))
        self._show(self._mpirun_output.close)
        return result

    def _step(self) -> None:
        """Waits a moment for events and handles them."""
        for key, _ in self._selector.select(timeout=_TICK_S):
            key.data(key.fileobj)
        self._drop_superfluous()
        self._show(lambda: self._output.tick(time.monotonic()))

    def _show(self, write: Callable[[], None]) -> None:
        """Writes for the user. When nobody reads (`roundelayrun ... | head`), the job ends, as by SIGPIPE."""
        if self._mute:
            return
        try:
            write()
        except OSError as error:
            self._mute = True
            if error.errno in _READER_GONE:
                self._kill()
            else:
                self._fail(f"cannot write the ranks' output: {error.strerror}")

    # --- incoming

    def _on_caller(self, caller: socket.socket) -> None:
        peer = self._listener.accept(caller)
        if peer is not None:
            self._selector.register(peer.socket, selectors.EVENT_READ, lambda _: self._on_frames(peer))
        self._drop_superfluous()

    def _drop_superfluous(self) -> None:
        for stranger in self._listener.superfluous():
            self._selector.unregister(stranger.socket)
            self._listener.drop(stranger)

    def _on_mpirun_output(self, pipe: IO[bytes]) -> None:
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return
        if not data:
            if pipe in self._selector.get_map():
                self._selector.unregister(pipe)
        elif self._ranks.failed() or self._interrupted_by is not None:
            self._held.append(data)
        else:
            self._show(lambda: self._mpirun_output.write(data, time.monotonic()))

    def _on_frames(self, peer: Peer) -> None:
        frames = peer.receive()
        if frames is None:
            if peer.rank is not None and self._ranks.peers.get(peer.rank) is peer:
                self._lose(peer.rank)
            else:
                self._selector.unregister(peer.socket)
                if not peer.is_proven:
                    self._listener.drop(peer)
                peer.socket.close()
            return
        for kind, payload in frames:
            self._on_frame(peer, kind, payload)

    def _on_frame(self, peer: Peer, kind: bytes, payload: bytes) -> None:
        if kind == protocol.HELLO:
            self._on_hello(peer, json.loads(payload))
        elif peer.rank is None:
            return
        elif kind == protocol.EXIT:
            self._on_ending(Ending(peer.rank, place=self._ranks.places[peer.rank], **json.loads(payload)))
        elif kind == protocol.REPORT:
            self._ranks.note_report(peer.rank, payload)
        elif kind == protocol.RESULT_PIECE:
            on_result, rank = self._settings.on_result, peer.rank
            if on_result is not None:
                self._show(lambda: on_result(rank, payload))
        else:
            stream = self._output.streams[peer.rank, "stdout" if kind == protocol.STDOUT else "stderr"]
            self._show(lambda: stream.write(payload, time.monotonic()))

    def _on_hello(self, peer: Peer, hello: Hello) -> None:
        rank, place = int(hello["rank"] or 0), f"pid {hello['pid']} on {hello['host']}"
        if rank >= self._settings.num_proc or rank in self._ranks.peers:
            by, asked = self._settings.mode.started_by, self._settings.num_proc
            self._fail(f"{by} started rank {rank} where {asked} ranks were asked for (see --mpi-args)")
            return
        self._ranks.add(rank, peer, place)
        if self._settings.verbose:
            self._settings.say(f"rank {rank} is {place}{_share(hello)}")

    def _on_ending(self, ending: Ending) -> None:
        rank = ending.rank
        self._show(lambda: self._output.close(rank))
        victim = is_victim(self._output.last_lines(rank), self._output.last_exception(rank))
        ending = self._ranks.end(ending, victim)
        if ending.returncode != 0:
            self._deadlines.rank_failed(time.monotonic(), lost=ending.returncode < 0 or ending.victim)

    def _lose(self, rank: int, *, silent: bool = False) -> None:
        """Handles the end of a connection."""
        peer, ending = self._ranks.lose(rank, silent=silent, agents_are_ours=self._settings.mode.is_ours)
        if ending is not None:
            self._on_ending(ending)
        self._selector.unregister(peer.socket)
        peer.socket.close()

    # --- outgoing

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        """Passes the user's first signal on to the ranks; the second one kills them."""
        if self._interrupted_by is not None:
            self._kill()
            return
        self._interrupted_by = signum
        self._ranks.order(protocol.SIGNAL + bytes([signum]))
        self._deadlines.interrupted(time.monotonic())

    def _forward(self, signum: int, _frame: FrameType | None) -> None:
        """Passes a signal on that is for the ranks' programs and does not end the job."""
        self._ranks.send(protocol.FORWARD + bytes([signum]))

    def _fail(self, problem: str) -> None:
        self._problem = self._problem or problem
        self._kill()

    def _kill(self) -> None:
        self._ranks.order(protocol.KILL)
        self._deadlines.kill(time.monotonic())

    def _advance(self, mpirun: subprocess.Popen[bytes], started: float) -> None:
        """Does the actions whose time has come."""
        now = time.monotonic()
        if self._deadlines.must_terminate(now):
            self._ranks.order(protocol.SIGNAL + bytes([signal.SIGTERM]))
        if self._deadlines.must_kill(now):
            self._kill()
        if len(self._ranks.places) < self._settings.num_proc and not self._deadlines.killed:
            self._check_start(now - started)
        if len(self._ranks.endings) == self._settings.num_proc and not self._dismissed:
            self._dismiss()
        signum = self._deadlines.signal_for_starter(now)
        if signum is not None:
            mpirun.send_signal(signum)

    def _check_start(self, waited: float) -> None:
        """Fails the job if some ranks call in too late; ends it at once after Ctrl-C."""
        if self._interrupted_by is not None:
            self._kill()
        elif waited > self._settings.start_timeout:
            missing = [rank for rank in range(self._settings.num_proc) if rank not in self._ranks.places]
            allowed = f"{self._settings.start_timeout:g} s (--start-timeout)"
            self._fail(f"{named(missing)} did not start within {allowed}")

    def _dismiss(self) -> None:
        """Lets the agents and mpirun end, as every rank has ended."""
        self._dismissed = True
        self._ranks.send(protocol.LEAVE)
        self._deadlines.all_ended(time.monotonic(), well=not self._ranks.failed())


def _start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Starts mpirun, with an output that a selector can wait for."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL if os.isatty(0) else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # the launcher passes Ctrl-C on itself
        preexec_fn=lambda: die_with_parent(signal.SIGTERM),  # noqa: PLW1509  no threads
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    return process


def _starter_failed(mode: LaunchMode, returncode: int, has_said_why: bool) -> Problem:
    text = f"{mode.started_by} itself ended the job: {how(returncode)}"
    return Problem("" if mode.is_ours and has_said_why else text, exit_status(returncode))


def _share(hello: Hello) -> str:
    """Returns which part of its machine a rank uses."""
    cpus = f", on CPUs {hello['cpus']}" if hello["cpus"] is not None else ", on any CPU"
    threads = f", OMP_NUM_THREADS={hello['threads']}" if hello["threads"] is not None else ""
    return f"{threads}{cpus}"
