"""A plain TCP stream in both directions at once: as fast as a wire can be used."""

from __future__ import annotations

import socket
import threading
import time

_PIECE = 1 << 20


class Stream:
    """One end of a connection between two processes."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self._incoming = bytearray(_PIECE)
        self._outgoing = memoryview(bytes(_PIECE))

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
        left = size
        while left > 0:
            got = self.connection.recv_into(self._incoming, min(left, _PIECE))
            if got == 0:
                raise ConnectionError("the other end of the stream is gone")
            left -= got
        sender.join()

    def close(self) -> None:
        """End the connection."""
        self.connection.close()

    def _send(self, size: int) -> None:
        left = size
        while left > 0:
            piece = min(left, _PIECE)
            self.connection.sendall(self._outgoing[:piece])
            left -= piece
