"""The launcher's end of its connections to the agents."""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
from collections.abc import Iterator

from roundelay.run.agent import HEADER
from roundelay.run.hosts import Host, is_local

_TOKEN_BYTES = 16


class Listener:
    """Where agents call in: an abstract Unix socket on one machine (nothing to clean up), TCP for several."""

    def __init__(self, hosts: list[Host], one_machine: bool) -> None:
        self.token = secrets.token_bytes(_TOKEN_BYTES)
        if one_machine:
            name = f"roundelay-run-{secrets.token_hex(8)}"
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.bind("\0" + name)
            self.socket.listen(128)
            self.address = f"unix:{name}"
        else:
            if socket.has_dualstack_ipv6():
                self.socket = socket.create_server(
                    ("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128
                )
            else:
                self.socket = socket.create_server(("", 0), backlog=128)
            port = self.socket.getsockname()[1]
            self.address = f"tcp:{','.join(own_addresses(hosts))}:{port}"

    def accept(self) -> Peer:
        """Takes the next caller."""
        connection, _ = self.socket.accept()
        return Peer(connection, self.token)

    def close(self) -> None:
        """Takes no more callers."""
        self.socket.close()


def own_addresses(hosts: list[Host]) -> list[str]:
    """The addresses of this machine, those first that face the given hosts."""
    addresses: dict[str, None] = {}
    for host in hosts:
        if not is_local(host.name):
            addresses.update(dict.fromkeys(_facing(host.name)))
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    addresses.update(dict.fromkeys(str(entry[4][0]) for entry in found))
    return list(addresses) or [socket.gethostname()]


def _facing(host: str) -> Iterator[str]:
    """The addresses that this machine would send from to `host`; nothing is sent."""
    try:
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(address)
            except OSError:
                continue
            yield str(probe.getsockname()[0])


class Peer:
    """One agent's connection. It counts for nothing until it has shown the token."""

    def __init__(self, connection: socket.socket, token: bytes) -> None:
        self.socket = connection
        self.rank: int | None = None
        self._token: bytes | None = token
        self._buffer = bytearray()

    def receive(self) -> list[tuple[bytes, bytes]] | None:
        """The frames that came, as (kind, payload); None: the connection is over, or was never an agent's."""
        try:
            data = self.socket.recv(1 << 18)
        except OSError:
            return None
        if not data:
            return None
        self._buffer += data
        if self._token is not None:
            if len(self._buffer) < len(self._token):
                return []
            if not hmac.compare_digest(bytes(self._buffer[: len(self._token)]), self._token):
                return None
            del self._buffer[: len(self._token)]
            self._token = None
        return list(self._frames())

    def _frames(self) -> Iterator[tuple[bytes, bytes]]:
        while len(self._buffer) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._buffer)
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            yield kind, bytes(self._buffer[HEADER.size : end])
            del self._buffer[:end]

    def order(self, order: bytes) -> None:
        """Sends an order; an agent that is gone has nothing left to do."""
        with contextlib.suppress(OSError):
            self.socket.send(order, socket.MSG_DONTWAIT)
