"""One of two ranks: all that travels goes over MPI, and the sums are right. Prints whose library it was."""

from __future__ import annotations

from pathlib import Path

import torch

import roundelay.torch as hvd
from roundelay import _core

hvd.init()
assert hvd.size() == 2
assert set(_core.transports().values()) == {"mpi"}, _core.transports()
for op, expected in ((hvd.Sum, 3.0), (hvd.Average, 1.5)):
    result = hvd.allreduce(torch.arange(100_000.0) * (hvd.rank() + 1), op=op)
    assert torch.equal(result, torch.arange(100_000.0) * expected)
maps = Path("/proc/self/maps").read_text().split()
libraries = {word for word in maps if "/libmpi.so" in word or "/libmpich.so" in word}
assert len(libraries) == 1, libraries
print(f"rank {hvd.rank()} is right, with {libraries.pop()}")
hvd.shutdown()
