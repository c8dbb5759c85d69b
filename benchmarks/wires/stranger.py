"""A stranger on another node: says things at a port, as the first lines of its input tell it.

Run as a program: `HOST PORT`, then a line of JSON for each attack on standard input, answered by a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
from typing import Any

CROWD = 250
MAGIC = struct.pack("<Q", 0xCAFEBABE12345678)  # with which connections of UCX's transport tcp begin
_NUMBER = 18  # where the first frame has the connection's number
_NOTHING_S = 0.3
ETHERNET, IP = 0x0800, 14


def garbage() -> list[bytes]:
    """Return noise, another protocol, and lengths of 2^63 and 2^32, for any protocol."""
    lengths = [struct.pack(form, value) + b"x" * 64 for form, value in (("<Q", 1 << 63), ("<I", 0xFFFFFFFF))]
    return [b"\0", os.urandom(4096), os.urandom(1 << 20), b"GET / HTTP/1.1\r\n\r\n", *lengths]


def renumbered(said: bytes) -> bytes:
    """Change the number that UCX gives a connection: the first one of its peer becomes another one."""
    return said[:_NUMBER] + struct.pack("<Q", 7) + said[_NUMBER + 8 :]


def _say(place: tuple[str, int], text: bytes) -> str:
    """Say something on one connection. Return what the other end does then."""
    try:
        with socket.create_connection(place, timeout=5) as made:
            made.sendall(text)
            made.settimeout(_NOTHING_S)
            heard = b""
            while more := made.recv(4096):
                heard += more
            return f"{len(heard)} bytes, then closed"
    except TimeoutError:
        return f"{len(heard)} bytes, open"
    except OSError as error:
        return error.strerror or str(error)


_held: list[socket.socket] = []


def _crowd(place: tuple[str, int]) -> str:
    for _ in range(CROWD):
        with contextlib.suppress(OSError):
            _held.append(socket.create_connection(place, timeout=5))
    return f"{len(_held)} connections"


def attack(place: tuple[str, int], given: dict[str, Any]) -> list[str]:
    """Carry out one attack."""
    what = given["what"]
    if what == "crowd":
        return [_crowd(place)]
    texts = {
        "garbage": garbage,
        "replay": lambda: [bytes.fromhex(given["said"])],
        "renumbered replay": lambda: [renumbered(bytes.fromhex(given["said"]))],
    }
    return [_say(place, text) for text in texts[what]()]


def record(port: int) -> None:
    """Print, at the end of the input, what the first peer said that has connected to this node's port."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERNET)) as tap:
        tap.settimeout(0.2)
        print("ready", flush=True)
        sys.stdin.readline()
        segments: dict[int, dict[int, bytes]] = {}
        with contextlib.suppress(socket.timeout):
            while True:
                packet = tap.recv(1 << 17)
                tcp = IP + (packet[IP] & 15) * 4
                if packet[IP + 9] != socket.IPPROTO_TCP:
                    continue
                source, target, number = struct.unpack_from(">HHI", packet, tcp)
                total = struct.unpack_from(">H", packet, IP + 2)[0]
                said = packet[tcp + (packet[tcp + 12] >> 4) * 4 : IP + total]
                if target == port and said:
                    segments.setdefault(source, {})[number] = said
    for parts in segments.values():
        print(b"".join(parts[number] for number in sorted(parts)).hex())
    print(flush=True)


def main() -> None:
    """Obey."""
    if sys.argv[1] == "record":
        record(int(sys.argv[2]))
        return
    place = (sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        print(json.dumps(attack(place, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
