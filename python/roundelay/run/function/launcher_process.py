"""Starts the launcher for the calling process, shows what it prints, and collects the ranks' replies."""

from __future__ import annotations

import codecs
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from roundelay.run.function import start, worker
from roundelay.run.function.outcome import End, Reply
from roundelay.run.launcher import result_pipe
from roundelay.run.system.processes import how

END_GRACE_S = 30.0  # the ranks' processes must end in this time after all functions returned, or one failed
_CHUNK = 1 << 18


class LauncherProcess:
    """One launcher and its ranks. May be used on any thread, as it uses no threads and no signal handlers."""

    def __init__(self, num_proc: int | None) -> None:
        """num_proc: None for an elastic job, which goes on when a rank has failed."""
        self._num_proc = num_proc
        self._counted = list(range(num_proc or 0))  # the ranks, or workers of now, whose values are wanted
        self.replies: defaultdict[int, Reply] = defaultdict(Reply)  # by rank, or by an elastic job's worker
        self.failed: list[int] = []  # in the order of arrival
        self._end: dict[str, Any] | None = None
        self._incoming = bytearray()
        self._end_at: float | None = None
        self._quiet = False

    def run(self, payload: BinaryIO, arguments: list[str]) -> End:
        """Runs the job to its end. Raises ValueError if the launcher refuses the arguments.

        Whatever is raised meanwhile, KeyboardInterrupt above all, ends the ranks first: they get SIGINT and
        5 s; the second time they are killed at once.
        """
        results, theirs = os.pipe()
        with os.fdopen(results, "rb", buffering=0) as pipe, payload:
            try:
                launcher = self._start(payload, theirs, arguments)
            finally:
                os.close(theirs)
            payload.close()
            with launcher:
                self._serve(launcher, pipe)
        return self._result(launcher.returncode)

    @staticmethod
    def _start(payload: BinaryIO, results: int, arguments: list[str]) -> subprocess.Popen[bytes]:
        handed = (payload.fileno(), results)
        command = [sys.executable, start.__file__, *map(str, handed), str(os.getpid()), *arguments]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=handed,
            start_new_session=True,  # this process passes Ctrl-C on itself
        )

    def _serve(self, launcher: subprocess.Popen[bytes], results: BinaryIO) -> None:
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        raised: BaseException | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(results, selectors.EVENT_READ, self._on_results)
            selector.register(launcher.stdout, selectors.EVENT_READ, self._shower("stdout"))
            selector.register(launcher.stderr, selectors.EVENT_READ, self._shower("stderr"))
            while selector.get_map():
                try:
                    self._step(selector, launcher)
                except KeyboardInterrupt as interrupt:
                    raised = raised or interrupt
                    launcher.send_signal(signal.SIGINT)
                except BaseException as error:
                    raised = raised or error
                    # Showing failed: it is not tried again, as the loop must reach its end.
                    launcher.send_signal(signal.SIGKILL if self._quiet else signal.SIGINT)
                    if self._quiet:
                        break
                    self._quiet = True
            launcher.wait()
        if raised is not None:
            raise raised

    def _step(self, selector: selectors.BaseSelector, launcher: subprocess.Popen[bytes]) -> None:
        """Waits for something to happen and deals with it."""
        wait = None if self._end_at is None else max(0.0, self._end_at - time.monotonic())
        for key, _ in selector.select(timeout=wait):
            data = os.read(key.fd, _CHUNK)
            if not data:
                selector.unregister(key.fileobj)
            key.data(data)
        if self._end_at is not None and time.monotonic() >= self._end_at:
            self._end_at = None
            launcher.send_signal(signal.SIGTERM)

    def _shower(self, name: str) -> Callable[[bytes], None]:
        """Returns a function that shows bytes on sys.stdout or sys.stderr, whichever object that is now."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

        def show(data: bytes) -> None:
            text, stream = decoder.decode(data, final=not data), getattr(sys, name)
            if text and stream is not None and not self._quiet:
                stream.write(text)
                stream.flush()

        return show

    def _on_results(self, data: bytes) -> None:
        self._incoming += data
        for kind, rank, payload in self._messages():
            if kind == result_pipe.END:
                self._end = json.loads(payload)
            elif kind == result_pipe.GENERATION:
                self._counted, self._end_at = json.loads(payload), None
            else:
                self._on_piece(rank, payload)

    def _on_piece(self, rank: int, piece: bytes) -> None:
        reply = self.replies[rank]
        reply.data += piece
        if reply.kind is None:
            return
        if reply.kind == worker.FAILURE:
            self.failed.append(rank)
            is_over = self._num_proc is not None and len(self.failed) == 1
        else:
            values = [self.replies[rank].kind == worker.VALUE for rank in self._counted]
            is_over = len(values) > 0 and all(values)  # an elastic job that has not begun counts nobody's
        if is_over:
            self._end_at = self._end_at or time.monotonic() + END_GRACE_S

    def _messages(self) -> Iterator[tuple[bytes, int, bytes]]:
        """Takes the whole messages off what has come."""
        header = result_pipe.HEADER
        while len(self._incoming) >= header.size:
            kind, rank, length = header.unpack_from(self._incoming)
            if len(self._incoming) < header.size + length:
                return
            payload = bytes(self._incoming[header.size : header.size + length])
            del self._incoming[: header.size + length]
            yield kind, rank, payload

    def _result(self, returncode: int) -> End:
        if self._end is None:
            text = f"the launcher itself ended: {how(returncode)}"
            return End(1, text, next(iter(self.failed), None), list(range(self._num_proc or 0)))
        if "refused" in self._end:
            raise ValueError(self._end["refused"])
        end = End(**self._end)
        if self._num_proc is not None and end.rank is None and self.failed:
            return replace(end, rank=self.failed[0])  # this rank raised, and then did not end by itself
        return end
