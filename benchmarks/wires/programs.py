"""Compiles the prototypes, and speaks with their processes on two nodes."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bare import compiler
from benchmarks.launch import JobError
from tests.rig import Rig

_FOLDER = Path(__file__).resolve().parent
_BLAKE2 = _FOLDER.parents[1] / "third_party" / "blake2"
_FLAGS = ["-std=c++20", "-O2"]
_SYSTEM = Path("/usr")
_VARIABLES = {
    "UCX_TLS": "tcp",
    "UCX_NET_DEVICES": "eth0",
    "UCX_LOG_FILE": "stderr",
    "WIRES_SECRET": "a secret of the job",
}
_ANSWER_S = 120.0
SOCKETS = "sockets"


def find_ucx() -> Path | None:
    """Return the prefix of UCX: of the wheel libucx-cu12 of this Python, else the system's; None without."""
    wheel = importlib.util.find_spec("libucx")
    places = [] if wheel is None or wheel.origin is None else [Path(wheel.origin).parent]
    found = (place for place in [*places, _SYSTEM] if (place / "include" / "ucp" / "api" / "ucp.h").exists())
    return next(found, None)


def build(folder: Path) -> dict[str, Path]:
    """Compile the prototypes into the folder: sockets, and ucx where there is one. Return them by name."""
    command = compiler()
    if command is None:
        raise JobError("no C++ compiler")
    parts = [str(_BLAKE2 / "blake2b-ref.c"), f"-I{_BLAKE2.parent}", f"-I{_BLAKE2}"]
    flags = {SOCKETS: parts}
    ucx = find_ucx()
    if ucx is not None:
        lib = ucx / "lib"
        flags["ucx"] = [f"-I{ucx / 'include'}", f"-L{lib}", f"-Wl,-rpath,{lib}", "-lucp", "-lucs"]
        if ucx == _SYSTEM:
            flags["ucx"] = ["-lucp", "-lucs"]
    for name, own in flags.items():
        source = str(_FOLDER / f"{name}.cc")
        subprocess.run([*command, *_FLAGS, source, *own, "-o", str(folder / name)], check=True)
    return {name: folder / name for name in flags}


@dataclass(frozen=True)
class Use:
    """What a process has used so far, and has now."""

    cpu: float  # seconds, user and system
    wakeups: int  # of all threads
    threads: int
    descriptors: int
    resident: int  # bytes

    @classmethod
    def of(cls, pid: int) -> Use:
        """Read it from /proc."""
        entry = Path(f"/proc/{pid}")
        status = _fields(entry / "status")
        tasks = list((entry / "task").iterdir())
        return cls(
            sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9,
            sum(int(_fields(task / "status")["voluntary_ctxt_switches"]) for task in tasks),
            len(tasks),
            len(list((entry / "fd").iterdir())),
            int(status["VmRSS"].split()[0]) << 10,
        )


def _fields(path: Path) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in path.read_text().splitlines() if ":\t" in line)


class End:
    """A process of a prototype on a node."""

    def __init__(self, rig: Rig, node: int, program: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="roundelay-wires-")
        self._errors = Path(self._folder.name) / "stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*rig.on(node), str(program)],
                env={**os.environ, **_VARIABLES},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._said = b""
        self.version: str = self.ask("version")
        self.pid = _last_child(self._process.pid)

    @property
    def pids(self) -> tuple[int, int]:
        """The process, and the one that has started it."""
        return self.pid, self._process.pid

    def post(self, line: str) -> None:
        """Give a command, whose answer() comes later."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # answer() says so
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def answer(self, limit: float = _ANSWER_S) -> Any:
        """Return the answer to the last command; None if it has ended or says nothing in time."""
        assert self._process.stdout is not None
        until = time.monotonic() + limit
        while b"\n" not in self._said:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            more = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not more:
                return None
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        return json.loads(line)

    def ask(self, line: str, limit: float = _ANSWER_S) -> Any:
        """Give a command and return its answer."""
        self.post(line)
        return self.answer(limit)

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        os.kill(self.pid, number)
        if number == signal.SIGCONT:  # nsenter, its parent, has stopped with it
            self._process.send_signal(number)

    def use(self) -> Use:
        """Return what the process has used."""
        return Use.of(self.pid)

    def died_of(self) -> str:
        """Return the signal or code that has ended the process; "" if it lives."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(0.5)
            return signal.Signals(-code).name if code < 0 else f"code {code}"
        return ""

    def errors(self) -> str:
        """Return what the process has written to standard error."""
        return self._errors.read_text(errors="replace")

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._process.communicate()
        self._folder.cleanup()


def _last_child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return _last_child(int(children[0])) if children else pid


def link(first: End, second: End) -> None:
    """Make a connection between two ends."""
    addresses = first.ask("address"), second.ask("address")
    second.post(f"accept {addresses[0]}")
    said = first.ask(f"connect {addresses[1]}"), second.answer()
    if said != ("", ""):
        raise JobError(f"no connection: {said}")


@contextlib.contextmanager
def ends(rig: Rig, program: Path) -> Iterator[tuple[End, End]]:
    """Yield two connected ends, on node 0 and on node 1."""
    both = End(rig, 0, program), End(rig, 1, program)
    try:
        link(*both)
        yield both
    finally:
        for end in both:
            end.close()
