"""Starts one host's ranks: `python -I -S on_host.py`, run by several_hosts.py here or over ssh.

It reads lines of JSON from standard input, so that no environment shows in a list of
processes: the plan; when all hosts have answered it, the numbers of the host's ranks; then the function,
if the ranks call one. It answers with one line on standard output. When the input ends, the
launcher is gone, and it ends the ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
from dataclasses import asdict, dataclass
from typing import BinaryIO

if __name__ == "__main__":  # a plain script; -I keeps its own folder off the path, too
    sys.path.append(os.path.abspath(f"{__file__}/../../../.."))

from roundelay.run.agent.protocol import FUNCTION
from roundelay.run.errors import UsageError
from roundelay.run.starter.local_ranks import HostRanks, LocalRanks, StorePorts, on_signals
from roundelay.run.system import interfaces, limits
from roundelay.run.system.anonymous import anonymous_file

ANSWER = b"roundelay: "  # a login shell may print other lines
_INTERFACE = "ROUNDELAY_INTERFACE"
_PIECE = 1 << 20  # bytes


@dataclass(frozen=True)
class HostPlan:
    """The first message to a host."""

    environment: dict[str, str]  # added to the host's own
    folder: str
    program: list[str]
    ranks: int  # on this host
    interfaces: list[str]  # names of the interfaces to use; empty: the ones towards `facing`
    facing: list[str]  # the other hosts, and the launcher, by name or address
    serves: bool  # whether rank 0 is here
    function: int | None = None  # the function's length in bytes; None: the ranks run a program

    def to_line(self) -> bytes:
        """Returns the plan as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


class HostError(Exception):
    """This host cannot do what the plan says. The text is one line."""


def prepare(plan: HostPlan) -> tuple[str, dict[str, str]]:
    """Returns this host's address for the other hosts, and the ranks' environment. Raises HostError."""
    environment = {**os.environ, **plan.environment}
    try:
        os.chdir(plan.folder)
    except OSError as error:
        raise HostError(f"cannot enter the folder {plan.folder!r}: {error.strerror}") from error
    if shutil.which(plan.program[0], path=environment.get("PATH")) is None:
        raise HostError(f"the program {plan.program[0]!r} is missing or not executable")
    try:
        limits.check_ranks(plan.ranks)
        own = interfaces.first_addresses(plan.interfaces)
    except (UsageError, ValueError) as error:
        raise HostError(str(error)) from error
    own += [address for host in plan.facing for address in interfaces.facing(host)]
    if not own:
        raise HostError("no network interface faces the other hosts; name one with --network-interfaces")
    name = interfaces.name_of(own[0])
    if name is not None and "HOROVOD_GLOO_IFACE" not in environment:
        environment.setdefault(_INTERFACE, name)
    return own[0], environment


def take_function(size: int) -> BinaryIO:
    """Reads the function from the input into a file that this host's agents, of the same user, can open."""
    payload = anonymous_file()
    while size > 0 and (piece := sys.stdin.buffer.read(min(size, _PIECE))):
        payload.write(piece)
        size -= len(piece)
    payload.flush()
    return payload


def main() -> int:
    """Follows the plan; returns the ranks' first exit status that is not 0."""
    line = sys.stdin.buffer.readline()
    if not line:
        return 1  # the launcher is gone already
    plan = HostPlan(**json.loads(line))
    with contextlib.ExitStack() as stack:
        answer: dict[str, object] = {}
        ports = None
        try:
            address, environment = prepare(plan)
            if plan.serves:
                ports = StorePorts(address)  # its ports are held as long as this process lives
                answer.update(store=ports.store, master_port=ports.master_port)
        except (HostError, OSError) as error:
            answer["error"] = str(error)
        sys.stdout.buffer.write(ANSWER + json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()
        line = sys.stdin.buffer.readline()
        if not line or "error" in answer:
            return 1
        if plan.function is not None:
            payload = take_function(plan.function)  # it stays open as long as this process lives
            environment[FUNCTION] = f"/proc/{os.getpid()}/fd/{payload.fileno()}"
        ranks = LocalRanks()
        on_signals(ranks.signal)
        os.dup2(2, 1)  # stdout has carried the answer: agents' lines go to stderr
        null = stack.enter_context(open(os.devnull, "rb"))
        orders = os.dup(0)
        os.set_inheritable(orders, False)
        os.dup2(null.fileno(), 0)  # the ranks read nothing
        numbers = json.loads(line)
        own = HostRanks(**{**numbers, "store": tuple(numbers["store"])})
        ranks.start(plan.program, own, environment, ports.listener if ports is not None else None)
    if ports is not None:
        ports.release()
    threading.Thread(target=end_with_input, args=(orders, ranks), daemon=True).start()
    return ranks.wait()


def end_with_input(orders: int, ranks: LocalRanks) -> None:
    """Ends the ranks when the descriptor, this process's input, has ended."""
    with contextlib.suppress(OSError):
        while os.read(orders, 1024):
            pass
    ranks.end()


if __name__ == "__main__":
    sys.exit(main())
