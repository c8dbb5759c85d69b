"""The agent's connection to the launcher: each proves that it has the job's secret; frames follow.

roundelay/_internal/trust.py and csrc/trust/trust.h describe the proofs. A frame is kind, length, payload and
a MAC over these and the frame's number: what comes from another host is an agent's, as it was sent.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from roundelay._internal import trust

HEADER = struct.Struct(">cI")
_PURPOSE = "launcher"
_HANDSHAKE_S = 20.0  # the launcher answers at once, unless its host is busy


class ForgedError(Exception):
    """The other end does not have the job's secret."""


class Seal:
    """Makes the MACs of one connection's frames, in their order."""

    def __init__(self, secret: bytes, caller: bytes, answerer: bytes) -> None:
        self._key = trust.mac(secret, "launcher key", caller, answerer)
        self._frames = 0

    def next(self, header: bytes, payload: bytes | memoryview) -> bytes:
        """Returns the MAC of the next frame."""
        self._frames += 1
        return trust.mac(self._key, "frame", self._frames.to_bytes(8, "little"), header, payload)


def call(connection: socket.socket, secret: bytes) -> Seal:
    """Proves this agent to the launcher, and makes it prove itself. Raises OSError, ForgedError."""
    connection.settimeout(_HANDSHAKE_S)
    mine = trust.new_secret()
    connection.sendall(mine)
    answer = b""
    while len(answer) < 2 * trust.BYTES:
        piece = connection.recv(2 * trust.BYTES - len(answer))
        if not piece:
            raise ConnectionResetError("it closed the connection")
        answer += piece
    theirs, proof = answer[: trust.BYTES], answer[trust.BYTES :]
    if not trust.is_same(proof, trust.proof(secret, "answer", _PURPOSE, mine, theirs)):
        raise ForgedError("another program answers in its place")
    connection.sendall(trust.proof(secret, "call", _PURPOSE, mine, theirs))
    connection.settimeout(None)
    return Seal(secret, mine, theirs)


class Incoming:
    """The launcher's end: takes a caller's bytes as they come."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._theirs = b""
        self._mine = b""
        self._seal: Seal | None = None
        self._buffer = bytearray()

    @property
    def is_proven(self) -> bool:
        """Whether the caller is an agent of this job."""
        return self._seal is not None

    @property
    def wanted(self) -> int:
        """The most bytes to read next: of a stranger no more than the handshake has."""
        return 1 << 18 if self._seal is not None else trust.BYTES - len(self._buffer)

    def add(self, data: bytes) -> bytes:
        """Takes bytes and returns what to answer. Raises ForgedError for a stranger."""
        self._buffer += data
        if self._seal is not None or len(self._buffer) < trust.BYTES:
            return b""
        first, self._buffer = bytes(self._buffer), bytearray()
        if not self._theirs:
            self._theirs, self._mine = first, trust.new_secret()
            return self._mine + self._proof("answer")
        if not trust.is_same(first, self._proof("call")):
            raise ForgedError("it does not have the job's secret")
        self._seal = Seal(self._secret, self._theirs, self._mine)
        return b""

    def _proof(self, role: trust.Role) -> bytes:
        return trust.proof(self._secret, role, _PURPOSE, self._theirs, self._mine)

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the complete frames, as (kind, payload). Raises ForgedError."""
        while self._seal is not None and len(self._buffer) >= HEADER.size:
            header = bytes(self._buffer[: HEADER.size])
            kind, length = HEADER.unpack(header)
            end = HEADER.size + length
            if len(self._buffer) < end + trust.BYTES:
                return
            payload, mac = (
                bytes(self._buffer[HEADER.size : end]),
                bytes(self._buffer[end : end + trust.BYTES]),
            )
            if not trust.is_same(mac, self._seal.next(header, payload)):
                raise ForgedError("a frame is not the agent's")
            del self._buffer[: end + trust.BYTES]
            yield kind, payload


def notice_death(connection: socket.socket) -> None:
    """Makes a TCP connection end within 6 s of the other host's death, or of the network's."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 5)):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
