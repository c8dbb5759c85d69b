"""One worker of an elastic job: the process that starts it on its host, here or at the other end of ssh."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from roundelay.run.modes.mode import PYTHON
from roundelay.run.starter import one_worker
from roundelay.run.starter.on_host import ANSWER, HostPlan
from roundelay.run.system.hosts import is_local
from roundelay.run.system.processes import die_with_parent


@dataclass(frozen=True)
class Launch:
    """What all workers of a job have in common."""

    program: list[str]
    environment: dict[str, str]  # added to that of the host
    ssh: Sequence[str]  # the command's first words
    interfaces: list[str]
    facing: list[str]  # addresses of the launcher, as other hosts see it; empty: all runs here
    function: bytes | None  # that the program calls


class WorkerProcess:
    """Starts a worker's agent, and ends it when it is closed: the agent's starter reads its input's end."""

    def __init__(
        self, number: int, host: str, slots: int, launch: Launch, on_end: Callable[[int, str], None]
    ) -> None:
        """slots: of the host. on_end: gets, on a thread, the worker and why it did not start ("": it did)."""
        self.number, self.host = number, host
        start = [*PYTHON, one_worker.__file__]
        command = start if is_local(host) else [*launch.ssh, host, shlex.join(start)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # close() waits for no writer
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(signal.SIGTERM),  # noqa: PLW1509  it only calls prctl
        )
        plan = HostPlan(
            environment=launch.environment,
            folder=os.getcwd(),
            program=launch.program,
            ranks=slots,
            interfaces=launch.interfaces,
            facing=launch.facing or [one_worker.LOOPBACK],
            serves=False,
            function=None if launch.function is None else len(launch.function),
        )
        words = plan.to_line() + b"%d\n" % number + (launch.function or b"")
        threading.Thread(target=self._watch, args=(words, on_end), daemon=True).start()

    def _watch(self, words: bytes, on_end: Callable[[int, str], None]) -> None:
        assert self._process.stdin is not None
        left = memoryview(words)
        # The process has ended, and its status says why; or the worker was closed, maybe within write().
        with contextlib.suppress(OSError, ValueError):
            while left:
                left = left[self._process.stdin.write(left) :]
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        answered = any(line.startswith(ANSWER) for line in self._process.stdout)
        lines = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        status = self._process.wait()
        said = lines[-1] if lines else f"exit status {status}"
        on_end(self.number, "" if answered else f"{self.host} cannot start a rank: {said}")

    def close(self) -> None:
        """Ends the worker, if it still runs."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
