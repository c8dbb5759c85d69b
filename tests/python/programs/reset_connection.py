"""Rank 0 resets the connection that carries an operation's data, in the middle of it."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

import roundelay.torch as hvd
from rank_here import Rank

_ELEMENTS = 16 << 20  # of 4 bytes: the wire needs half a second or more
_MIDDLE = 2 << 20  # bytes that a connection has carried when it is reset
_LIMIT_S = 30.0
_BYTES_AT = 120  # bytes acknowledged and bytes received, in struct tcp_info

OPERATIONS: dict[str, Callable[[], object]] = {
    "allreduce": lambda: hvd.allreduce(torch.ones(_ELEMENTS), op=hvd.Sum),
    "allgather": lambda: hvd.allgather(torch.ones(_ELEMENTS)),
    "reducescatter": lambda: hvd.reducescatter(torch.ones(_ELEMENTS), op=hvd.Sum),
    "broadcast": lambda: hvd.broadcast(torch.ones(_ELEMENTS), 0),
    "alltoall": lambda: hvd.alltoall(torch.ones(_ELEMENTS)),
}


def _carried(descriptor: int) -> int:
    """Returns the bytes that a TCP connection has carried; 0 if it is no connection."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return 0
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return 0
    acknowledged, received = struct.unpack_from("QQ", info, _BYTES_AT)
    return int(acknowledged + received)


def _reset_the_busy_one() -> None:
    until = time.monotonic() + _LIMIT_S
    while time.monotonic() < until:
        for entry in os.listdir("/proc/self/fd"):
            if _carried(int(entry)) > _MIDDLE:
                no_address = struct.pack("H14x", socket.AF_UNSPEC)  # Linux resets a connection with it
                assert ctypes.CDLL(None).connect(int(entry), no_address, len(no_address)) == 0
                return
        time.sleep(0.005)
    raise TimeoutError("no connection is busy")


def _held() -> tuple[int, int]:
    """Returns the numbers of this process's threads and descriptors."""
    threads, descriptors = (len(list(Path(f"/proc/self/{kind}").iterdir())) for kind in ("task", "fd"))
    return threads, descriptors


def _works() -> None:
    """Joins the job, and leaves it."""
    hvd.init()
    assert hvd.allreduce(torch.ones(100_000), op=hvd.Sum).eq(hvd.size()).all()
    hvd.shutdown()


def reset_in(me: Rank, operation: str) -> None:
    """Says what the operation raised, whether the next job works, and whether something is left."""
    for _ in range(2):  # the first one starts threads that stay
        _works()
    before = _held()
    hvd.init()
    resets = threading.Thread(target=_reset_the_busy_one)
    if me.number == 0:
        resets.start()
    try:
        OPERATIONS[operation]()
    except hvd.HorovodInternalError as error:
        print("raised:", error, flush=True)
    if me.number == 0:
        resets.join()
    hvd.shutdown()
    _works()
    print("works anew", flush=True)
    until = time.monotonic() + _LIMIT_S
    while _held() != before and time.monotonic() < until:
        time.sleep(0.05)
    print("nothing is left" if _held() == before else f"{before} became {_held()}")
