"""The launcher's end of its connections to the agents."""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import struct
from collections.abc import Iterator

from roundelay.run import interfaces
from roundelay.run.agent import HEADER, notice_death
from roundelay.run.errors import UsageError
from roundelay.run.hosts import Host, is_local

_TOKEN_BYTES = 16
_TCP_INFO = struct.Struct("=24xI28xI")  # linux/tcp.h's tcp_info up to last_ack_recv: unacked, and that


class Listener:
    """Takes agents' connections: on an abstract Unix socket (no file is left), or TCP for several hosts."""

    def __init__(self, addresses: list[str]) -> None:
        """addresses: where to listen for other hosts; empty: on this machine only."""
        self.token = secrets.token_bytes(_TOKEN_BYTES)
        if addresses:
            self.sockets = [listen(address) for address in addresses]
            ports = [caller.getsockname()[1] for caller in self.sockets]
            places = [f"{address}:{port}" for address, port in zip(addresses, ports, strict=True)]
            self.address = f"tcp:{','.join(places)}"
        else:
            name = f"roundelay-run-{secrets.token_hex(8)}"
            local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            local.bind("\0" + name)
            local.listen(128)
            self.sockets = [local]
            self.address = f"unix:{name}"

    def accept(self, caller: socket.socket) -> Peer:
        """Takes the next caller of one of the sockets."""
        connection, _ = caller.accept()
        if connection.family != socket.AF_UNIX:
            notice_death(connection)
        return Peer(connection, self.token)

    def close(self) -> None:
        """Takes no more callers."""
        for caller in self.sockets:
            caller.close()


def listen(address: str) -> socket.socket:
    """Listens on a port that the system chooses. Raises UsageError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, 0), family=family, backlog=128)
    except OSError as error:
        raise UsageError(f"cannot listen on {address} for the hosts: {error.strerror}") from error


def own_addresses(hosts: list[Host], chosen: list[str]) -> list[str]:
    """Returns this machine's addresses for the given hosts: of the chosen interfaces, or towards the hosts.

    Raises UsageError where there are none.
    """
    try:
        found = dict.fromkeys(interfaces.of(chosen))
    except ValueError as error:
        raise UsageError(f"--network-interfaces: {error}") from error
    if found:
        return list(found)
    for host in hosts:
        if not is_local(host.name):
            found.update(dict.fromkeys(interfaces.facing(host.name)))
    if not found:  # only ssh or a scheduler knows the names
        found = dict.fromkeys(
            address for name, own in interfaces.addresses().items() if name != "lo" for address in own[:1]
        )
    if not found:
        raise UsageError("no network interface here has an address for other hosts to call")
    return list(found)


class Peer:
    """One agent's connection. The launcher ignores it until it has shown the token."""

    def __init__(self, connection: socket.socket, token: bytes) -> None:
        self.socket = connection
        self.rank: int | None = None
        self.broken = ""  # why the connection broke; empty while it is open or if the agent has closed it
        self._token: bytes | None = token
        self._buffer = bytearray()

    def receive(self) -> list[tuple[bytes, bytes]] | None:
        """Returns the frames that came, as (kind, payload); None if the connection is over or no agent's."""
        try:
            data = self.socket.recv(1 << 18)
        except OSError as error:
            self.broken = error.strerror or str(error)
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

    def unheard(self) -> tuple[float, bool]:
        """Returns the seconds since the agent's host acknowledged anything, and whether it owes us that now.

        0.0 and False on this machine. Hosts that live acknowledge something each second (notice_death).
        """
        if self.socket.family == socket.AF_UNIX:
            return 0.0, False
        info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        unacknowledged, last_ms = _TCP_INFO.unpack(info)
        return last_ms / 1000, unacknowledged > 0

    def order(self, order: bytes) -> None:
        """Sends an order. Does nothing if the agent is gone.

        A job gives few orders, of two bytes at most. They fit into the socket's buffer, also while an agent
        is stopped and reads none.
        """
        with contextlib.suppress(OSError):
            self.socket.send(order, socket.MSG_DONTWAIT)
