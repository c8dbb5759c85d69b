"""The program's connection to the launcher of an elastic job, which gives it a place in each generation."""

from __future__ import annotations

import functools
import json
import os
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from roundelay._internal import trust
from roundelay.run.agent import agent, protocol
from roundelay.run.agent.frames import ForgedError, Seals

_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Place:
    """A rank of one generation, and where its ranks meet: rank 0 serves a store there."""

    generation: int
    rank: int
    size: int
    host: str
    port: int
    left: list[int]  # workers of the generation before that are not in this one
    came: list[int]  # workers that were not in the one before
    listener: int | None  # rank 0's descriptor, which listens on the port

    @property
    def job(self) -> str:
        """Names the generation: no key of an earlier one is read."""
        return f"elastic/{self.generation}/{self.size}"


class NoPlaceError(RuntimeError):
    """The launcher gives this worker no place, for the reason in the text. `dismissed`: it may end well."""

    def __init__(self, text: str, *, dismissed: bool = False) -> None:
        super().__init__(text)
        self.dismissed = dismissed


class Dismissed(SystemExit):
    """Ends a process that the launcher does not need any more."""


class Member:
    """One worker. A thread of its own reads what the launcher sends. Any thread may read its attributes."""

    def __init__(self, number: int, address: str, connection: socket.socket, seals: Seals) -> None:
        """number: the worker's. address: of this host, for the others."""
        self._address = address
        self._connection, self._seals = connection, seals
        self._answers: queue.SimpleQueue[tuple[bytes, bytes]] = queue.SimpleQueue()
        self.change = 0  # what the launcher says of the workers since place() returned (membership.Change)
        self.over = (0, "")  # the last generation that is over, and why
        self.lost: set[int] = set()  # generations that have lost a worker
        # Gets, on the reading thread, the number of a generation that is over. Set it before place().
        self.on_over: Callable[[int], None] = lambda _: None
        self._send(protocol.MEMBER, b"%d" % number)
        threading.Thread(target=self._read, daemon=True, name="roundelay-elastic").start()

    def place(self, *, has_state: bool, program: Mapping[str, str]) -> Place:
        """Asks for a place in the next generation, and waits for it; the launcher bounds the wait.

        program: describes it; all workers must have the same texts. Raises NoPlaceError.
        """
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        with socket.create_server((self._address, 0), family=family, backlog=socket.SOMAXCONN) as listener:
            wanted = {
                "host": self._address,
                "port": listener.getsockname()[1],
                "has_state": has_state,
                "program": dict(program),
            }
            self._send(protocol.WANTED, json.dumps(wanted).encode())
            kind, payload = self._answers.get()
            if kind == protocol.DISMISSED:
                raise NoPlaceError(
                    "the hosts of this job have changed, and this one is not among them", dismissed=True
                )
            if kind != protocol.PLACE:
                raise NoPlaceError(payload.decode())
            given = json.loads(payload)
            return Place(**given, listener=listener.detach() if given["rank"] == 0 else None)

    def _end(self, generation: int, why: str, lost: bool) -> None:
        self.over = (generation, why)
        if lost:
            self.lost.add(generation)
        self.on_over(generation)

    def _send(self, kind: bytes, payload: bytes) -> None:
        try:
            self._connection.sendall(self._seals.to_launcher.sealed(kind, payload))
        except OSError as error:
            raise NoPlaceError(f"the launcher is gone: {error.strerror}") from error

    def _read(self) -> None:
        buffer = bytearray()
        try:
            while data := self._connection.recv(_MOST_BYTES):
                buffer += data
                for kind, payload in self._seals.to_caller.opened(buffer):
                    if kind == protocol.CHANGED:
                        self.change = max(self.change, int(payload))
                        continue
                    if kind == protocol.OVER:
                        self._end(**json.loads(payload))
                        continue
                    if kind == protocol.PLACE:
                        self.change = 0
                    self._answers.put((kind, payload))
        except (OSError, ForgedError):
            pass
        self._answers.put((protocol.REFUSED, b"the launcher is gone"))


def words_of(environment: Mapping[str, str]) -> tuple[int, str, str] | None:
    """Returns an elastic worker's number, its host's address and the launcher's; None: it is none."""
    words = environment.get(protocol.WORKER, "").split(" ")
    return (int(words[0]), words[1], words[2]) if len(words) == 3 else None


@functools.cache
def of_this_process() -> Member | None:
    """Returns this process's worker; None if its job is not elastic. RuntimeError: no launcher answers."""
    words = words_of(os.environ)
    if words is None:
        return None
    number, address, launcher = words
    try:
        return Member(number, address, *agent.call(launcher, trust.secret()))
    except (OSError, ForgedError) as error:
        raise RuntimeError(f"cannot reach the launcher of this elastic job: {error}") from error
