"""A plain TCP stream in both directions at once: as fast as a wire can be used."""

from __future__ import annotations

import socket
import threading
import time

_PIECE = 1 << 20


class Stream:
    """One end of a connection between two processes."""

    def __init__(self, connection: socket.socket, memory: int = _PIECE) -> None:
        """memory: bytes that it sends from, and as many that it receives to, again and again."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._incoming = memoryview(bytearray(memory))
        self._outgoing = memoryview(bytearray(b"\1") * memory)

    def through(self, memory: int) -> Stream:
        """Returns the same connection with so much memory: a piece of one MiB stays in a core's cache."""
        return Stream(self._connection, memory)

    @classmethod
    def listen(cls, address: str, port: int) -> Stream:
        """Wait for the other end."""
        with socket.create_server((address, port)) as server:
            return cls(server.accept()[0])

    @classmethod
    def connect(cls, address: str, port: int, patience_s: float = 30.0) -> Stream:
        """Connect to the other end, once it listens."""
        give_up = time.monotonic() + patience_s
        while True:
            try:
                return cls(socket.create_connection((address, port)))
            except ConnectionRefusedError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.02)

    def exchange(self, size: int) -> None:
        """Send so many bytes while as many come in. The other end does the same at the same time."""
        sender = threading.Thread(target=self._send, args=(size,))
        sender.start()
        came = 0
        while came < size:
            place = came % len(self._incoming)
            most = min(size - came, _PIECE, len(self._incoming) - place)
            got = self._connection.recv_into(self._incoming[place:], most)
            if got == 0:
                raise ConnectionError("the other end of the stream is gone")
            came += got
        sender.join()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _send(self, size: int) -> None:
        sent = 0
        while sent < size:
            place = sent % len(self._outgoing)
            piece = min(size - sent, _PIECE, len(self._outgoing) - place)
            self._connection.sendall(self._outgoing[place : place + piece])
            sent += piece
