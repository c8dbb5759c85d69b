"""One end of a bad wire: it loses, delays and reorders what its node sends to the other nodes.

Each node runs one (`python -m tests.rig.bad_wire`). It makes an interface `wild0` with an address of its own,
and hands the packets that the kernel sends there to the ends of other nodes, through sockets in a folder.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

INTERFACE = "wild0"
_PACKET = 65536  # the longest that an interface gives
_SET_NAME, _TUN_WITHOUT_HEADER = 0x400454CA, 0x1001  # TUNSETIFF; IFF_TUN | IFF_NO_PI


def address(node: int) -> str:
    """Return a node's address on this wire."""
    return f"10.79.0.{node + 1}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.rig.bad_wire", description=__doc__)
    parser.add_argument("node", type=int)
    parser.add_argument("folder", type=Path, help="where the ends meet; the same for all")
    parser.add_argument("--loss", type=float, default=0.0, help="the share of packets that are lost")
    parser.add_argument("--reorder", type=float, default=0.0, help="the share that overtakes those before")
    parser.add_argument("--delay-ms", type=float, default=0.0)
    return parser


def _open_interface(node: int) -> int:
    """Make the interface, and return what reads and writes its packets."""
    interface = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(interface, _SET_NAME, struct.pack("16sH22x", INTERFACE.encode(), _TUN_WITHOUT_HEADER))
    subprocess.run(["ip", "address", "add", f"{address(node)}/24", "dev", INTERFACE], check=True)
    subprocess.run(["ip", "link", "set", INTERFACE, "up"], check=True)
    return interface


class _End:
    """What is under way from this node."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._random = random.Random(given.node)
        self._queue: list[tuple[float, int, bytes]] = []  # (when it leaves, its number, the packet)
        self._number = 0
        self.interface = _open_interface(given.node)
        self.others = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.others.setblocking(False)
        self.others.bind(str(given.folder / address(given.node)))

    def take(self) -> None:
        """Take what the kernel sends."""
        try:
            packet = os.read(self.interface, _PACKET)
        except BlockingIOError:
            return
        if packet[0] >> 4 != 4 or self._random.random() < self._given.loss:  # IPv4 only
            return
        overtakes = self._random.random() < self._given.reorder
        delay = self._given.delay_ms / 1000 * (0.2 if overtakes else 1.0)
        self._number += 1
        heapq.heappush(self._queue, (time.monotonic() + delay, self._number, packet))

    def send_due(self) -> float:
        """Send what has waited for long enough. Return the seconds until the next one is due."""
        while self._queue and self._queue[0][0] <= time.monotonic():
            packet = heapq.heappop(self._queue)[2]
            to = self._given.folder / socket.inet_ntoa(packet[16:20])
            with contextlib.suppress(OSError):  # nobody is there, or the wire is full: the packet is lost
                self.others.sendto(packet, str(to))
        return max(0.0, self._queue[0][0] - time.monotonic()) if self._queue else 1.0

    def give(self) -> None:
        """Give the kernel what has come from another node."""
        with contextlib.suppress(OSError):  # the kernel does not take it
            os.write(self.interface, self.others.recv(_PACKET))


def main() -> None:
    """Carry packets until the input ends."""
    end = _End(_parser().parse_args())
    print("up", flush=True)
    wait = 1.0
    while True:
        ready, _, _ = select.select([end.interface, end.others, sys.stdin], [], [], wait)
        if sys.stdin in ready:
            return
        if end.interface in ready:
            end.take()
        if end.others in ready:
            end.give()
        wait = end.send_due()


if __name__ == "__main__":
    main()
