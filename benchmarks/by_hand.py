"""An allreduce between two nodes of two ranks by hand: shared memory, and blocking sockets between the nodes.

A yardstick: a rank does its half of the work, and nothing negotiates, polls or watches. The tensors lie in
memory that both ranks of a node reach.
"""

from __future__ import annotations

import mmap
import os
import queue
import threading
from collections.abc import Callable

import torch
import torch.distributed as dist

from benchmarks.contenders import Contender
from tests.rig.stream import Stream

NAME = "by hand"
_PORT = 7078  # and the next one
_PIECE = 256 << 10  # elements


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.numpy().data).cast("B")


class ByHand(Contender):
    """A sum of float32 in place. All ranks make and call it alike."""

    name = NAME

    def __init__(self, address: str) -> None:
        """Connect this rank with that of the same place on the other node; `address`: of the first node."""
        import roundelay.torch as hvd

        assert (hvd.local_size(), hvd.cross_size()) == (2, 2), "by hand: two nodes of two ranks alone"
        self._place, port = hvd.local_rank(), _PORT + hvd.local_rank()
        self._neighbour = hvd.rank() ^ 1  # a node's ranks are consecutive
        first = hvd.cross_rank() == 0
        self._stream = Stream.listen(address, port) if first else Stream.connect(address, port)
        self._incoming = torch.empty(_PIECE)
        self._bell, mine = os.pipe()
        self._ring = os.open(self._path_of_neighbours(mine), os.O_WRONLY)
        self._parts: dict[int, torch.Tensor] = {}  # the neighbour's tensors, by the address of this rank's

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Return None: it adds any elements."""
        return None

    def make(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make a tensor in shared memory."""
        own = os.memfd_create(NAME)
        os.ftruncate(own, count * dtype.itemsize)
        other = os.open(self._path_of_neighbours(own), os.O_RDWR)
        tensor, part = (torch.frombuffer(mmap.mmap(file, 0), dtype=dtype) for file in (own, other))
        self._parts[tensor.data_ptr()] = part
        return tensor

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Cut this rank's half of both tensors into pieces."""
        half = (tensor.numel() + 1) // 2
        own, other = (
            part.split(half)[self._place].split(_PIECE)
            for part in (tensor, self._parts.pop(tensor.data_ptr()))
        )
        return lambda: self._allreduce(list(zip(own, other, strict=True)))

    def _allreduce(self, pieces: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        self._meet()
        sent: queue.SimpleQueue[None] = queue.SimpleQueue()

        def send() -> None:
            for own, other in pieces:
                own.add_(other)
                self._stream.connection.sendall(_bytes_of(own))
                sent.put(None)

        sender = threading.Thread(target=send)
        sender.start()
        for own, other in pieces:
            incoming = self._incoming[: own.numel()]
            self._receive(_bytes_of(incoming))
            sent.get()
            own.add_(incoming)
            other.copy_(own)
        sender.join()
        self._meet()

    def _receive(self, into: memoryview) -> None:
        while into:
            got = self._stream.connection.recv_into(into)
            if got == 0:
                raise ConnectionError("the other node is gone")
            into = into[got:]

    def _meet(self) -> None:
        """Wait for the neighbour."""
        os.write(self._ring, b"!")
        os.read(self._bell, 1)

    def _path_of_neighbours(self, own: int) -> str:
        """Tell the neighbour of this rank's open file; return the path of the neighbour's."""
        places = [""] * dist.get_world_size()
        dist.all_gather_object(places, f"/proc/{os.getpid()}/fd/{own}")
        return places[self._neighbour]
