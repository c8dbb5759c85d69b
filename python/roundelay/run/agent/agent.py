"""The process beside each rank: starts the program, forwards its output, tells the launcher how it ended.

mpirun starts one agent a rank, as a plain script (`python -I -S agent.py -- program ...`); where there is
none, starter/local_ranks.py forks them. An agent uses only the standard library, and siblings that do. The
program is its child and inherits everything, so it is this rank's MPI process.
The agent stays until the launcher has heard of the end of all ranks. So mpirun never sees a rank die, and
does not end the job: ranks that have lost a peer can still say so, and the launcher decides when the job is
over. When the launcher itself is gone, the connection ends, and the agent ends its program.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time

if __name__ == "__main__":  # a plain script; -I keeps its own folder off the path, too
    sys.path.append(os.path.abspath(f"{__file__}/../../../.."))

from roundelay._internal import error_report, trust
from roundelay._internal.launcher_variables import TORCH, names
from roundelay.run.agent import affinity, frames, horovod_variables, protocol, torch_variables
from roundelay.run.agent.frames import ForgedError, Seals, notice_death
from roundelay.run.system import signals
from roundelay.run.system.processes import (
    ORPHAN_GRACE_S,
    adopt_orphans,
    children,
    die_with_parent,
    end_orphans,
    send_signal,
)

OWN_RANK = "ROUNDELAY_RUN_RANK"  # our starter tells the rank by it
RANK_VARIABLES = (OWN_RANK, *names("rank"))
SIZE_VARIABLES = (*names("size"), *TORCH.size)
LOCAL_SIZE_VARIABLES = (*names("local_size"), *TORCH.local_size)
LOCAL_RANK_VARIABLES = (*names("local_rank"), *TORCH.local_rank)

_FAILED_GRACE_S = 0.3  # ORPHAN_GRACE_S after a program has failed
_CHUNK = 1 << 16
_CALLS = 20


def first_number(variables: tuple[str, ...]) -> int | None:
    """Returns the value of the first of `variables` that is set to a number; None if none is."""
    for variable in variables:
        value = os.environ.get(variable, "")
        if value.isdigit():
            return int(value)
    return None


def dial(address: str) -> socket.socket:
    """Connects to "unix:NAME" (abstract) or "tcp:host:port,..." (the first that answers). Raises OSError."""
    kind, _, where = address.partition(":")
    if kind == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect("\0" + where)
        return connection
    errors = []
    for place in where.split(","):
        host, _, port = place.rpartition(":")
        try:
            connection = socket.create_connection((host, int(port)), timeout=5)
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            notice_death(connection)
            return connection
        except OSError as error:
            errors.append(f"{place}: {error.strerror or error}")
    raise OSError("; ".join(errors))


def call(address: str, secret: bytes) -> tuple[socket.socket, Seals]:
    """Connects to the launcher; each proves to the other that it has the secret. OSError, ForgedError.

    A launcher that many strangers call may drop an agent before it has proven itself: it calls again.
    """
    for left in reversed(range(_CALLS)):
        connection = dial(address)
        try:
            return connection, frames.call(connection, secret)
        except (ConnectionError, TimeoutError):
            connection.close()
            if left == 0:
                raise
    raise AssertionError("unreachable")


def bind() -> set[int] | None:
    """Gives this process and its children this rank's share of the CPUs. None: they may use them all."""
    rank, ranks = first_number(LOCAL_RANK_VARIABLES), first_number(LOCAL_SIZE_VARIABLES)
    if protocol.BIND not in os.environ or rank is None or ranks is None or rank >= ranks:
        return None
    cpus = affinity.share(affinity.read_nodes(os.sched_getaffinity(0)), rank, ranks)
    if cpus is not None:
        os.sched_setaffinity(0, cpus)
    return cpus


class Agent:
    """One rank's program and its connection to the launcher."""

    def __init__(self, command: list[str], rank: int, connection: socket.socket, seals: Seals) -> None:
        self._command = command
        self._rank = rank
        self._connection, self._seal = connection, seals.to_launcher
        self._program: subprocess.Popen[bytes] | None = None
        self._function = os.environ.get(protocol.FUNCTION)
        self._pipes: dict[int, bytes] = {}  # from the program, and the kind of frame for what comes
        self._raised = self._told_to_stop = self._killed = False
        self._leave = threading.Event()

    def run(self) -> None:
        """Starts the program, forwards its output until it has ended, reports, and waits for LEAVE."""
        adopt_orphans()
        cpus = bind()
        environment, threads = self._environment(bound=cpus is not None)
        signals.handle(signals.ENDING, self._tell_to_stop)
        signals.handle(signals.FORWARDED, lambda signum, _: self._signal_program(signum))
        hello = {
            "rank": self._rank,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "threads": threads,
            "cpus": affinity.shown(cpus) if cpus is not None else None,
        }
        try:
            self._program = self._start(environment)
        except OSError as error:
            self._send(protocol.HELLO, json.dumps(hello).encode())
            what = f"cannot start {error.filename or self._command[0]!r}: {error.strerror}\n"
            self._send(protocol.STDERR, what.encode())
            self._report(126 if isinstance(error, PermissionError) else 127)
        else:
            hello["pid"] = self._program.pid
            self._send(protocol.HELLO, json.dumps(hello).encode())
            threading.Thread(target=self._obey, daemon=True).start()
            self._forward_output(self._program)
            self._report(self._program.wait())
            self._leave.wait()
            return
        self._obey()

    def _start(self, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Starts the program. If it calls a function, the function is its standard input."""
        with contextlib.ExitStack() as opened:

            def pipe(kind: bytes) -> int:
                ours, theirs = os.pipe()
                opened.callback(os.close, theirs)
                os.set_inheritable(theirs, True)
                self._pipes[ours] = kind
                return theirs

            environment[error_report.PIPE] = error_report.named(pipe(protocol.REPORT))
            stdin = None
            if self._function is not None:
                stdin = opened.enter_context(open(self._function, "rb"))
                environment[protocol.RESULT] = str(pipe(protocol.RESULT_PIECE))
            return subprocess.Popen(
                self._command,
                env=environment,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                close_fds=False,  # an MPI may have handed down a descriptor (PMI_FD)
                preexec_fn=lambda: die_with_parent(signal.SIGKILL),  # noqa: PLW1509  no thread yet
            )

    def _environment(self, *, bound: bool) -> tuple[dict[str, str], int | None]:
        """Returns the program's environment, and the OMP_NUM_THREADS chosen here (None: the user set it)."""
        environment = dict(os.environ)
        environment[trust.SECRET] = environment[protocol.SECRET]
        if protocol.WORKER in environment:
            environment[protocol.WORKER] += f" {environment[protocol.ADDRESS]}"
        for variable in (
            protocol.ADDRESS,
            protocol.SECRET,
            protocol.BIND,
            protocol.FUNCTION,
            OWN_RANK,
            horovod_variables.RANKS_BY_HOST,
        ):
            environment.pop(variable, None)
        if "OMP_NUM_THREADS" in environment:
            return environment, None
        sharers = 1 if bound else max(1, first_number(LOCAL_SIZE_VARIABLES) or 1)
        threads = max(1, len(os.sched_getaffinity(0)) // sharers)
        environment["OMP_NUM_THREADS"] = str(threads)
        return environment, threads

    def _send(self, kind: bytes, payload: bytes) -> None:
        """Sends one frame. _obey notices if the launcher is gone."""
        with contextlib.suppress(OSError):
            self._connection.sendall(self._seal.sealed(kind, payload))

    def _report(self, returncode: int) -> None:
        """Tells the launcher how the program ended: `returncode` as subprocess has it (minus the signal)."""
        report = {"returncode": returncode, "stopped": self._told_to_stop, "raised": self._raised}
        self._send(protocol.EXIT, json.dumps(report).encode())

    def _forward_output(self, program: subprocess.Popen[bytes]) -> None:
        """Forwards output until the program has ended, ends the processes it left, and empties the pipes."""
        assert program.stdout is not None
        assert program.stderr is not None
        ended = os.pidfd_open(program.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(ended, selectors.EVENT_READ, None)
            selector.register(program.stdout, selectors.EVENT_READ, protocol.STDOUT)
            selector.register(program.stderr, selectors.EVENT_READ, protocol.STDERR)
            for pipe, kind in self._pipes.items():
                selector.register(pipe, selectors.EVENT_READ, kind)
            over = False
            while not over:
                for key, _ in selector.select():
                    if key.data is None:
                        over = True
                    else:
                        self._forward_chunk(selector, key)
            selector.unregister(ended)
            # This comes before the report, so that no process is left when the launcher lets go.
            failed = program.wait() != 0
            end_orphans(0.0 if self._killed else _FAILED_GRACE_S if failed else ORPHAN_GRACE_S)
            while selector.get_map() and (ready := selector.select(timeout=0)):
                for key, _ in ready:
                    self._forward_chunk(selector, key)
        os.close(ended)

    def _forward_chunk(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        data = os.read(key.fd, _CHUNK)
        if data:
            if key.data == protocol.REPORT and error_report.has_error(data):
                self._raised = not self._told_to_stop
            self._send(key.data, data)
        else:
            selector.unregister(key.fileobj)

    def _tell_to_stop(self, signum: int, _frame: object = None) -> None:
        """Passes a signal on to the program: mpirun and users signal the agent, but mean the program.

        A program that has ended before was not told to stop: it may be the one that failed first.
        """
        self._told_to_stop = self._told_to_stop or not self._has_ended()
        self._signal_program(signum)

    def _has_ended(self) -> bool:
        """Returns whether the program has ended, also if nobody has waited for it."""
        if self._program is None:
            return False
        try:
            return os.waitid(os.P_PID, self._program.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _signal_program(self, signum: int) -> None:
        if self._program is not None and self._program.returncode is None:
            send_signal(self._program.pid, signum)

    def _obey(self) -> None:
        """Follows the launcher's orders. If the launcher closes the connection, ends at once."""
        orders = self._connection.makefile("rb", buffering=0)
        while True:
            try:
                order = orders.read(1)
            except OSError:
                order = b""
            number = orders.read(1) if order in (protocol.SIGNAL, protocol.FORWARD) else None
            if number:
                (self._tell_to_stop if order == protocol.SIGNAL else self._signal_program)(number[0])
            elif order == protocol.KILL:
                self._killed = True
                self._tell_to_stop(signal.SIGKILL)
            elif order == protocol.LEAVE:
                self._leave.set()
                return
            else:
                self._abandon()

    def _abandon(self) -> None:
        """Ends the program and this agent, as the launcher is gone."""
        self._signal_program(signal.SIGTERM)
        deadline = time.monotonic() + ORPHAN_GRACE_S
        while children() and time.monotonic() < deadline:
            time.sleep(0.02)
        deadline = time.monotonic() + ORPHAN_GRACE_S
        while children() and time.monotonic() < deadline:
            for pid in children():
                send_signal(pid, signal.SIGKILL)
            time.sleep(0.02)
        os._exit(1)


def expected(rank: int) -> dict[str, str]:
    """Returns the variables that horovodrun would set for this rank; after an MPI also torchrun's numbers."""
    size, local_rank = first_number(SIZE_VARIABLES), first_number(LOCAL_RANK_VARIABLES)
    local_size = first_number(LOCAL_SIZE_VARIABLES)
    by_host = os.environ.get(horovod_variables.RANKS_BY_HOST, "")
    own = OWN_RANK in os.environ  # no MPI
    backend = "gloo" if own else "mpi"
    found = horovod_variables.of_rank(rank, size, local_rank, local_size, by_host, backend)
    return found if own else {**found, **torch_variables.of_rank(rank, size, local_rank, local_size)}


def run(program: list[str]) -> int:
    """Runs the agent of one rank until LEAVE; returns its exit status. The environment has the settings."""
    rank = first_number(RANK_VARIABLES)
    if rank is not None:
        os.environ.update(expected(rank))
    if protocol.ADDRESS not in os.environ:  # a user has started the line of --dry-run: there is no launcher
        os.execvp(program[0], program)
    if rank is None:
        print("roundelay agent: this MPI does not tell a process its rank", file=sys.stderr)
        return protocol.FAILED
    try:
        connection, seal = call(os.environ[protocol.ADDRESS], bytes.fromhex(os.environ[protocol.SECRET]))
    except (OSError, ForgedError) as error:
        print(f"roundelay agent: rank {rank} cannot reach the launcher: {error}", file=sys.stderr)
        return protocol.FAILED
    with contextlib.ExitStack() as held:
        address, port = (os.environ.get(name, "") for name in (torch_variables.ADDRESS, torch_variables.PORT))
        if rank == 0 and OWN_RANK not in os.environ and port.isdigit():
            with contextlib.suppress(OSError, OverflowError):  # only a program that needs the port must care
                held.enter_context(torch_variables.hold(address, int(port)))
        Agent(program, rank, connection, seal).run()
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[2:]))
