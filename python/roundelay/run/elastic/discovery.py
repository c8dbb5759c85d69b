"""Asks the user's script for the hosts of an elastic job, now and then."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Mapping

from roundelay.run.errors import UsageError
from roundelay.run.system.hosts import parse_hosts
from roundelay.run.system.processes import die_with_parent, how

THREAD = "roundelay-discovery"
INTERVAL_S = 1.0  # between two runs of the script
_SCRIPT_S = 30.0  # a run that takes longer counts as failed
_MOST_SLOTS = 4096  # of a host: so many processes are an error of the script


class Discovery:
    """Runs the user's script on a thread of its own: a script that hangs holds nothing up.

    A run that fails changes nothing; the first one in a row is told of. The thread ends when nothing refers
    to this object any more. A script that runs ends with the launcher.
    """

    def __init__(self, script: str, slots: int, say: Callable[[str], None]) -> None:
        """slots: of a host for which the script prints none. Raises UsageError if its first run fails."""
        self._script, self._slots, self._say = script, slots, say
        self._hosts = self._ask()
        self._failed = False
        watched = weakref.ref(self)
        threading.Thread(target=_watch, args=(watched,), name=THREAD, daemon=True).start()

    def hosts(self) -> Mapping[str, int]:
        """Returns the slots by host, as the script's last good run printed them."""
        return self._hosts

    def look(self) -> None:
        """Runs the script once more."""
        try:
            self._hosts, self._failed = self._ask(), False
        except UsageError as error:
            if not self._failed:
                self._say(f"{error}; going on with the hosts that are known")
            self._failed = True

    def _ask(self) -> Mapping[str, int]:
        try:
            return parse(_output_of(self._script), self._slots)
        except (subprocess.SubprocessError, OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--host-discovery-script {self._script!r} failed: {error}") from error


def _watch(watched: weakref.ref[Discovery]) -> None:
    time.sleep(INTERVAL_S)
    while (discovery := watched()) is not None:
        discovery.look()
        del discovery
        time.sleep(INTERVAL_S)


def _output_of(script: str) -> str:
    """Runs the script. Raises OSError, UnicodeDecodeError, SubprocessError if it fails or takes too long."""
    with subprocess.Popen(
        script,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: die_with_parent(signal.SIGKILL),  # noqa: PLW1509  it only calls prctl
    ) as run:
        try:
            printed, complaint = run.communicate(timeout=_SCRIPT_S)
        except subprocess.TimeoutExpired as error:
            os.killpg(run.pid, signal.SIGKILL)  # the shell's children, too: they hold the pipes
            raise subprocess.SubprocessError(f"it takes longer than {_SCRIPT_S:g} s") from error
        if run.returncode != 0:
            said = complaint.strip().splitlines()[-1:] or [how(run.returncode)]
            raise subprocess.SubprocessError(said[0])
        return printed


def parse(text: str, slots: int) -> Mapping[str, int]:
    """Reads lines like "host:4" or "host", as Horovod's scripts print them. Raises UsageError.

    No line at all is no answer: a script that reads a file may see it while it is written.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise UsageError("--host-discovery-script printed no host")
    try:
        hosts = parse_hosts(",".join(line if ":" in line else f"{line}:{slots}" for line in lines))
    except UsageError as error:
        raise UsageError(f"--host-discovery-script printed a {error}") from error
    if any(host.slots > _MOST_SLOTS for host in hosts):
        raise UsageError(f"--host-discovery-script printed a host with more than {_MOST_SLOTS} slots")
    return {host.name: host.slots for host in hosts}
