"""An agent whose connection is reset when it is killed, as its program does: `resetting_agent.py SCRIPT`."""

from __future__ import annotations

import socket
import struct
import sys

from roundelay.run.agent import agent

dial = agent.dial


def resetting(address: str) -> socket.socket:
    """Connects so that the end of the process resets the connection."""
    connection = dial(address)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return connection


agent.dial = resetting
agent.run(["sh", "-c", sys.argv[1]])
