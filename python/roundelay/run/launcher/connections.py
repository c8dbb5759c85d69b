"""The launcher's end of its connections to the agents."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import struct
import time

from roundelay._internal import trust
from roundelay.run.agent.frames import ForgedError, Incoming, notice_death
from roundelay.run.errors import UsageError
from roundelay.run.system import interfaces
from roundelay.run.system.hosts import Host, is_local

_TCP_INFO = struct.Struct("=24xI28xI")  # linux/tcp.h's tcp_info up to last_ack_recv: unacked, and that
# So many callers, beside the job's own agents, may have proven nothing yet, and for so long.
SPARE_STRANGERS, SILENCE_S = 64, 30.0


class Listener:
    """Takes agents' connections: on an abstract Unix socket (no file is left), or TCP for several hosts.

    Anybody on the host or in the network can call. Who does not prove to be an agent is dropped and counted.
    """

    def __init__(self, addresses: list[str], agents: int = 1) -> None:
        """addresses: where to listen for other hosts; empty: on this machine only. agents: their number."""
        self.secret = trust.new_secret()
        self.strangers = 0  # that were dropped
        self._unproven: list[Peer] = []  # oldest first
        self._is_full = False  # no more files may be open
        self._most = agents + SPARE_STRANGERS
        if addresses:
            self.sockets = [listen(address) for address in addresses]
            ports = [caller.getsockname()[1] for caller in self.sockets]
            places = [f"{address}:{port}" for address, port in zip(addresses, ports, strict=True)]
            self.address = f"tcp:{','.join(places)}"
        else:
            name = f"roundelay-run-{secrets.token_hex(8)}"
            local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            local.bind("\0" + name)
            local.listen(socket.SOMAXCONN)
            self.sockets = [local]
            self.address = f"unix:{name}"

    def accept(self, caller: socket.socket) -> Peer | None:
        """Takes the next caller of one of the sockets; None if it is another user, or already gone."""
        try:
            connection, _ = caller.accept()
        except ConnectionError:
            return None
        except OSError as error:
            self._is_full = error.errno in (errno.EMFILE, errno.ENFILE) and bool(self._unproven)
            if not self._is_full:
                raise
            return None
        if connection.family != socket.AF_UNIX:
            notice_death(connection)
        elif _uid_of(connection) != os.geteuid():
            self._drop(connection)
            return None
        peer = Peer(connection, self.secret)
        self._unproven.append(peer)
        return peer

    def superfluous(self) -> list[Peer]:
        """Returns the callers to drop: they prove nothing for too long, or there are too many."""
        self._unproven = [peer for peer in self._unproven if not peer.is_proven and peer.socket.fileno() >= 0]
        now = time.monotonic()
        most = len(self._unproven) // 2 if self._is_full else self._most
        self._is_full = False
        return [
            peer
            for index, peer in enumerate(self._unproven)
            if index < len(self._unproven) - most or now - peer.since > SILENCE_S
        ]

    def drop(self, peer: Peer) -> None:
        """Drops and counts a stranger."""
        self._drop(peer.socket)

    def _drop(self, connection: socket.socket) -> None:
        self.strangers += 1
        connection.close()

    def close(self) -> None:
        """Takes no more callers."""
        for caller in self.sockets:
            caller.close()


def _uid_of(connection: socket.socket) -> int:
    credentials = struct.Struct("3i")  # pid, uid, gid
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    return int(credentials.unpack(packed)[1])


def listen(address: str) -> socket.socket:
    """Listens on a port that the system chooses. Raises UsageError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, 0), family=family, backlog=socket.SOMAXCONN)
    except OSError as error:
        raise UsageError(f"cannot listen on {address} for the hosts: {error.strerror}") from error


def own_addresses(hosts: list[Host], chosen: list[str]) -> list[str]:
    """Returns this machine's addresses for the given hosts: of the chosen interfaces, or towards the hosts.

    Raises UsageError where there are none.
    """
    try:
        found = dict.fromkeys(interfaces.first_addresses(chosen))
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
    """One agent's connection. The launcher ignores it until it has proven itself."""

    def __init__(self, connection: socket.socket, secret: bytes) -> None:
        self.socket = connection
        self.rank: int | None = None
        self.broken = ""  # why the connection broke; empty while it is open or if the agent has closed it
        self.since = time.monotonic()
        self._incoming = Incoming(secret)

    @property
    def is_proven(self) -> bool:
        """Whether the caller is an agent of this job."""
        return self._incoming.is_proven

    def receive(self) -> list[tuple[bytes, bytes]] | None:
        """Returns the frames that came, as (kind, payload); None if the connection is over or no agent's."""
        try:
            data = self.socket.recv(self._incoming.wanted)
            if not data:
                return None
            answer = self._incoming.add(data)
            if answer:
                self.socket.send(answer, socket.MSG_DONTWAIT)  # a new connection takes it all
            return list(self._incoming.frames())
        except OSError as error:
            self.broken = error.strerror or str(error)
            return None
        except ForgedError:
            return None

    def unheard(self) -> tuple[float, bool]:
        """Returns the seconds since the agent's host acknowledged anything, and whether it owes us that now.

        0.0 and False on this machine. Hosts that live acknowledge something each second (notice_death).
        """
        if self.socket.family == socket.AF_UNIX:
            return 0.0, False
        info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        unacknowledged, last_ms = _TCP_INFO.unpack(info)
        return last_ms / 1000, unacknowledged > 0

    def tell(self, kind: bytes, payload: bytes = b"") -> None:
        """Sends a frame to a program, which reads all the time. Does nothing if it is gone."""
        with contextlib.suppress(OSError):
            self.socket.send(self._incoming.frame(kind, payload), socket.MSG_DONTWAIT)

    def order(self, order: bytes) -> None:
        """Sends an order. Does nothing if the agent is gone.

        A job gives few orders, of two bytes at most. They fit into the socket's buffer, also while an agent
        is stopped and reads none.
        """
        with contextlib.suppress(OSError):
            self.socket.send(order, socket.MSG_DONTWAIT)
