"""The agent's connection to the launcher: each proves that it has the job's secret; frames follow.

roundelay/_internal/trust.py and csrc/trust/trust.h describe the proofs. A frame is kind, length, payload and
a MAC over these and the frame's number: what comes from another host is an agent's, as it was sent. The
program of an elastic job has a connection of its own, on which the launcher sends frames, too.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from roundelay._internal import trust

HEADER = struct.Struct(">cI")
_PURPOSE = "launcher"
_HANDSHAKE_S = 20.0  # the launcher answers at once, unless its host is busy


class ForgedError(Exception):
    """The other end does not have the job's secret."""


class Seal:
    """Makes the MACs of one connection's frames, in their order."""

    def __init__(self, secret: bytes, caller: bytes, answerer: bytes, purpose: str = "launcher key") -> None:
        self._key = trust.mac(secret, purpose, caller, answerer)
        self._frames = 0

    def next(self, header: bytes, payload: bytes | memoryview) -> bytes:
        """Returns the MAC of the next frame."""
        self._frames += 1
        return trust.mac(self._key, "frame", self._frames.to_bytes(8, "little"), header, payload)

    def sealed(self, kind: bytes, payload: bytes) -> bytes:
        """Returns the next frame."""
        header = HEADER.pack(kind, len(payload))
        return header + payload + self.next(header, payload)

    def opened(self, buffer: bytearray) -> Iterator[tuple[bytes, bytes]]:
        """Takes the complete frames from the buffer's front, as (kind, payload). Raises ForgedError."""
        while len(buffer) >= HEADER.size:
            header = bytes(buffer[: HEADER.size])
            kind, length = HEADER.unpack(header)
            end = HEADER.size + length
            if len(buffer) < end + trust.BYTES:
                return
            payload, mac = bytes(buffer[HEADER.size : end]), bytes(buffer[end : end + trust.BYTES])
            if not trust.is_same(mac, self.next(header, payload)):
                raise ForgedError("a frame is not the other end's")
            del buffer[: end + trust.BYTES]
            yield kind, payload


class Seals(NamedTuple):
    """The seals of the two directions."""

    to_launcher: Seal
    to_caller: Seal


def _seals(secret: bytes, caller: bytes, answerer: bytes) -> Seals:
    return Seals(
        Seal(secret, caller, answerer), Seal(secret, caller, answerer, "key of the launcher's frames")
    )


def call(connection: socket.socket, secret: bytes) -> Seals:
    """Proves this caller to the launcher, and makes it prove itself. Raises OSError, ForgedError."""
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
    return _seals(secret, mine, theirs)


class Incoming:
    """The launcher's end: takes a caller's bytes as they come."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._theirs = b""
        self._mine = b""
        self._seals: Seals | None = None
        self._buffer = bytearray()

    @property
    def is_proven(self) -> bool:
        """Whether the caller is an agent of this job."""
        return self._seals is not None

    @property
    def wanted(self) -> int:
        """The most bytes to read next: of a stranger no more than the handshake has."""
        return 1 << 18 if self._seals is not None else trust.BYTES - len(self._buffer)

    def add(self, data: bytes) -> bytes:
        """Takes bytes and returns what to answer. Raises ForgedError for a stranger."""
        self._buffer += data
        if self._seals is not None or len(self._buffer) < trust.BYTES:
            return b""
        first, self._buffer = bytes(self._buffer), bytearray()
        if not self._theirs:
            self._theirs, self._mine = first, trust.new_secret()
            return self._mine + self._proof("answer")
        if not trust.is_same(first, self._proof("call")):
            raise ForgedError("it does not have the job's secret")
        self._seals = _seals(self._secret, self._theirs, self._mine)
        return b""

    def _proof(self, role: trust.Role) -> bytes:
        return trust.proof(self._secret, role, _PURPOSE, self._theirs, self._mine)

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the complete frames, as (kind, payload). Raises ForgedError."""
        if self._seals is not None:
            yield from self._seals.to_launcher.opened(self._buffer)

    def frame(self, kind: bytes, payload: bytes) -> bytes:
        """Returns a frame for the caller, who has proven itself."""
        assert self._seals is not None
        return self._seals.to_caller.sealed(kind, payload)


def notice_death(connection: socket.socket) -> None:
    """Makes a TCP connection end within 6 s of the other host's death, or of the network's."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 5)):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
