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
from dataclasses import dataclass, replace
from types import FrameType
from typing import IO

from roundelay._internal import error_report
from roundelay.run.agent import protocol
from roundelay.run.launcher.connections import Listener, Peer
from roundelay.run.launcher.output import Output, Stream
from roundelay.run.launcher.result import Ending, JobResult, Problem, is_victim, job_result, named
from roundelay.run.system import signals
from roundelay.run.system.processes import die_with_parent, exit_status, how

# These times count from a rank's failure. If it exited, the others get a moment to end by themselves: they
# may fail of the same cause. If it was killed, they get longer to say which rank they lost; if it has lost
# another one, that one gets as long to end. Then they get SIGTERM, and SIGKILL after KILL_AFTER_S. All is
# over within 5 s of the failure.
EXIT_GRACE_S, LOST_GRACE_S, KILL_AFTER_S = 1.0, 2.5, 3.5
INTERRUPT_GRACE_S = 5.0  # from the user's first signal to SIGKILL
# mpirun gets this time to end after its ranks, and after each signal; longer if all went well.
MPIRUN_GRACE_S, MPIRUN_QUIET_GRACE_S = 1.0, 5.0
_TICK_S = 0.1
_READER_GONE = (errno.EPIPE, errno.EIO)  # the reader of a pipe, or a terminal


@dataclass(frozen=True)
class Settings:
    """The settings of the launcher itself."""

    num_proc: int
    start_timeout: float  # seconds
    verbose: bool
    started_by: str  # "mpirun" or "starter", for messages
    prefix: str  # begins the lines that started_by itself writes
    say: Callable[[str], None]  # shows a line of the launcher's own
    on_result: Callable[[int, bytes], None] | None = None  # takes a piece of a rank's reply


@dataclass(frozen=True)
class Error:
    """A rank's exception that reached the top."""

    at: float  # monotonic seconds
    of_peer: bool  # another rank has caused it


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
        self._peers: dict[int, Peer] = {}
        self._places: dict[int, str] = {}
        self._endings: list[Ending] = []
        self._errors: dict[int, Error] = {}  # the last exception that each rank told of
        self._told: bytes | None = None  # the last order to all ranks; each one is to end them
        self._interrupted_by: int | None = None
        self._problem: str | None = None
        self._terminate_at = self._kill_at = self._end_mpirun_at = float("inf")
        self._mpirun_signals = [signal.SIGTERM, signal.SIGKILL]
        self._killed = self._dismissed = self._mute = False

    @property
    def endings(self) -> list[Ending]:
        """The endings of the ranks that have ended, in the order of arrival."""
        return list(self._endings)

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
        mpirun = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL if os.isatty(0) else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # the launcher passes Ctrl-C on itself
            preexec_fn=lambda: die_with_parent(signal.SIGTERM),  # noqa: PLW1509  no threads
        )
        assert mpirun.stdout is not None
        os.set_blocking(mpirun.stdout.fileno(), False)
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
        if self._running():
            self._order(protocol.KILL)
            self._wait_for_endings()
        for rank in list(self._peers):
            self._lose(rank, silent=True)

    def _wait_for_endings(self) -> None:
        """Listens until every rank has ended, for MPIRUN_GRACE_S at most."""
        deadline = time.monotonic() + MPIRUN_GRACE_S
        while self._running() and time.monotonic() < deadline:
            self._step()

    def _running(self) -> set[int]:
        """Returns the ranks that are connected and have not ended."""
        return set(self._peers) - {ending.rank for ending in self._endings}

    def _job_result(self, mpirun_returncode: int) -> JobResult:
        if self._mute:
            if self._problem is not None:
                return JobResult(1, self._problem)
            return JobResult(128 + (self._interrupted_by or signal.SIGPIPE))
        problem = None
        if self._problem is not None:
            problem = Problem(self._problem, 1)
        elif mpirun_returncode != 0:
            text = f"{self._settings.started_by} itself ended the job: {how(mpirun_returncode)}"
            if self._settings.started_by == "starter" and self._mpirun_output.tail:
                text = ""  # the starter has said why
            problem = Problem(text, exit_status(mpirun_returncode))
        result = job_result(
            self._endings,
            self._settings.num_proc,
            interrupted_by=self._interrupted_by,
            problem=problem,
            started_by=self._settings.started_by,
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
        elif any(ending.returncode != 0 for ending in self._endings) or self._interrupted_by is not None:
            self._held.append(data)
        else:
            self._show(lambda: self._mpirun_output.write(data, time.monotonic()))

    def _on_frames(self, peer: Peer) -> None:
        frames = peer.receive()
        if frames is None:
            if peer.rank is not None and self._peers.get(peer.rank) is peer:
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
            self._on_ending(Ending(rank=peer.rank, place=self._places[peer.rank], **json.loads(payload)))
        elif kind == protocol.ERROR:
            of_peer = payload.endswith(error_report.OF_PEER)
            self._errors[peer.rank] = Error(time.monotonic(), of_peer)
        elif kind == protocol.RESULT_PIECE:
            on_result, rank = self._settings.on_result, peer.rank
            if on_result is not None:
                self._show(lambda: on_result(rank, payload))
        else:
            stream = self._output.streams[peer.rank, "stdout" if kind == protocol.STDOUT else "stderr"]
            self._show(lambda: stream.write(payload, time.monotonic()))

    def _on_hello(self, peer: Peer, hello: dict[str, int | str | None]) -> None:
        rank = int(hello["rank"] or 0)
        if rank >= self._settings.num_proc or rank in self._peers:
            by, asked = self._settings.started_by, self._settings.num_proc
            self._fail(f"{by} started rank {rank} where {asked} ranks were asked for (see --mpi-args)")
            return
        peer.rank = rank
        self._peers[rank] = peer
        self._places[rank] = f"pid {hello['pid']} on {hello['host']}"
        if self._settings.verbose:
            cpus = f", on CPUs {hello['cpus']}" if hello["cpus"] is not None else ", on any CPU"
            threads = f", OMP_NUM_THREADS={hello['threads']}" if hello["threads"] is not None else ""
            self._settings.say(f"rank {rank} is {self._places[rank]}{threads}{cpus}")
        if self._told is not None:
            peer.order(self._told)

    def _on_ending(self, ending: Ending) -> None:
        rank, now = ending.rank, time.monotonic()
        self._show(lambda: self._output.close(rank))
        error = self._errors.get(rank)
        if error is not None:
            ending = replace(ending, failed_at=error.at, victim=error.of_peer)
        else:
            victim = is_victim(self._output.last_lines(rank), self._output.last_exception(rank))
            ending = replace(ending, failed_at=ending.failed_at or now, victim=victim)
        self._endings.append(ending)
        if ending.returncode != 0:
            grace = LOST_GRACE_S if ending.returncode < 0 or ending.victim else EXIT_GRACE_S
            self._terminate_at = min(self._terminate_at, now + grace)
            self._kill_at = min(self._kill_at, now + KILL_AFTER_S)

    def _lose(self, rank: int, *, silent: bool = False) -> None:
        """Handles the end of a connection. Without a report, the program was killed or the host is gone."""
        running = rank in self._running()
        peer = self._peers.pop(rank)
        if running:
            unheard_s, unanswered = peer.unheard()
            broken = peer.broken or ("no answer" if silent and unanswered else "")
            failed_at = time.monotonic() - (unheard_s if broken else 0.0)
            told = self._told is not None and not broken
            # mpirun kills agents for reasons of its own; our starters never do.
            unclear = not (told or broken) and self._settings.started_by == "mpirun"
            place, returncode = self._places[rank], -signal.SIGKILL
            self._on_ending(Ending(rank, returncode, told, place, failed_at, broken=broken, unclear=unclear))
        self._selector.unregister(peer.socket)
        peer.socket.close()

    # --- outgoing

    def _order(self, order: bytes) -> None:
        """Gives an order to every rank that still runs, and to those that call in later."""
        self._told = order
        for rank in self._running():
            self._peers[rank].order(order)

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        """Passes the user's first signal on to the ranks; the second one kills them."""
        if self._interrupted_by is not None:
            self._kill()
            return
        self._interrupted_by = signum
        self._order(protocol.SIGNAL + bytes([signum]))
        self._terminate_at = float("inf")
        self._kill_at = time.monotonic() + INTERRUPT_GRACE_S

    def _forward(self, signum: int, _frame: FrameType | None) -> None:
        """Passes a signal on that is for the ranks' programs and does not end the job."""
        for peer in list(self._peers.values()):
            peer.order(protocol.FORWARD + bytes([signum]))

    def _fail(self, problem: str) -> None:
        self._problem = self._problem or problem
        self._kill()

    def _kill(self) -> None:
        self._killed = True
        self._kill_at = float("inf")
        self._order(protocol.KILL)
        # This ends mpirun also if some ranks never called in.
        self._end_mpirun_at = min(self._end_mpirun_at, time.monotonic() + MPIRUN_GRACE_S)

    def _advance(self, mpirun: subprocess.Popen[bytes], started: float) -> None:
        """Does the actions whose time has come."""
        now = time.monotonic()
        if now >= self._terminate_at:
            self._terminate_at = float("inf")
            self._order(protocol.SIGNAL + bytes([signal.SIGTERM]))
        if now >= self._kill_at:
            self._kill()
        if len(self._places) < self._settings.num_proc and not self._killed:
            self._check_start(now - started)
        if len(self._endings) == self._settings.num_proc and not self._dismissed:
            self._dismiss()
        if now >= self._end_mpirun_at:
            mpirun.send_signal(self._mpirun_signals[0])
            del self._mpirun_signals[:-1]
            self._end_mpirun_at = now + MPIRUN_GRACE_S

    def _check_start(self, waited: float) -> None:
        """Fails the job if some ranks call in too late; ends it at once after Ctrl-C."""
        if self._interrupted_by is not None:
            self._kill()
        elif waited > self._settings.start_timeout:
            missing = [rank for rank in range(self._settings.num_proc) if rank not in self._places]
            allowed = f"{self._settings.start_timeout:g} s (--start-timeout)"
            self._fail(f"{named(missing)} did not start within {allowed}")

    def _dismiss(self) -> None:
        """Lets the agents and mpirun end, as every rank has ended."""
        self._dismissed = True
        for peer in self._peers.values():
            peer.order(protocol.LEAVE)
        well = all(ending.returncode == 0 for ending in self._endings)
        grace = MPIRUN_QUIET_GRACE_S if well else MPIRUN_GRACE_S
        self._end_mpirun_at = time.monotonic() + grace
