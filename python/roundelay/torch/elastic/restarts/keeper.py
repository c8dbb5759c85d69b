"""A process that holds the commits of a node's workers while torchrun restarts them.

Arguments: NAME of its socket, and AGENT, the process id of torchrun's agent on this node. It writes a line
when it, or another keeper, listens. It ends with the agent, and the kernel frees what it held.

A caller sends a key. With an open file, this becomes the key's. Without one, the answer is the key's file, if
it has one. Only processes of the same user are heard.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import sys

KEY_BYTES = 64
_CALL_S = 5.0  # a caller that says nothing for so long is dropped
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def is_of_this_user(connection: socket.socket) -> bool:
    """Returns whether the other end belongs to this user. Names of abstract sockets are free to all."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(found)[1]
    return uid == os.geteuid()


def _answer(connection: socket.socket, held: dict[bytes, int]) -> None:
    connection.settimeout(_CALL_S)
    key, files, _, _ = socket.recv_fds(connection, KEY_BYTES, 1)
    if files:
        if key in held:
            os.close(held[key])
        held[key] = files[0]
        connection.send(b"+")
    elif key in held:
        socket.send_fds(connection, [b"+"], [held[key]])
    else:
        connection.send(b"-")


def main(name: str, agent: int) -> None:
    """Holds files until the agent ends."""
    ends = os.pidfd_open(agent)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        try:
            server.bind(f"\0{name}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            print(flush=True)
            return
        server.listen(socket.SOMAXCONN)
        print(flush=True)
        held: dict[bytes, int] = {}
        both = [server.fileno(), ends]
        while ends not in select.select(both, [], [])[0]:
            connection, _ = server.accept()
            with connection:
                if is_of_this_user(connection):
                    with contextlib.suppress(OSError):  # the caller was killed
                        _answer(connection, held)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
