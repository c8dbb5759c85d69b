"""Runs a command on the first node, and hands it the signals that this process gets."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence

from roundelay.emulate.network import Network, NetworkError
from roundelay.run.system import signals
from roundelay.run.system.processes import exit_status

# The command's pid as its node knows it goes to its input, a pipe. Ranks on several hosts read nothing there.
_SAYS_PID = 'echo $$ >&0; exec "$@" </dev/null'


def run(network: Network, command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the command to its end; returns its exit status as a shell has it.

    It is in a session of its own. So a Ctrl-C reaches it once, through this process, and nothing around it.
    """
    # None: the command has ended. (Signal handlers may only put into a SimpleQueue.)
    events: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    signals.handle((*signals.ENDING, *signals.FORWARDED), lambda number, _: events.put(number))
    reading, writing = os.pipe()
    with open(reading) as says_pid:
        process = subprocess.Popen(
            [*network.on(0), "sh", "-c", _SAYS_PID, "sh", *command],
            env=environment,
            stdin=writing,
            start_new_session=True,
        )
        os.close(writing)
        said = says_pid.readline()

    def wait() -> None:
        process.wait()
        events.put(None)

    threading.Thread(target=wait, daemon=True).start()
    while (number := events.get()) is not None:
        with contextlib.suppress(NetworkError):  # the command has just ended
            if said:
                network.signal(0, int(said), number)
    return exit_status(process.returncode)
