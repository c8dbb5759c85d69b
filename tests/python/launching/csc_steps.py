"""Steps with CSC on two nodes: the bytes that a node sends, beside those of the messages.

python csc_steps.py FOLDER KEEP ...     writes FOLDER/N.json on rank N: by KEEP, [bytes sent, least bytes]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import roundelay.torch as hvd
from benchmarks.gradientflow.message import message_bytes
from roundelay.torch.strategies import CSC

SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")
SHAPES = [(1000,), (64, 60_000), (3000, 1100), (50,), (2048, 2048), (1025, 4095)]  # 59 MiB, 472 chunks
WARMUPS, STEPS = 4, 6


class Counted(CSC):
    """Adds up the bytes that the chosen chunks, the norms and the dense parameters have."""

    message = elements = 0

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Counts what was sent in this step."""
        self.message += message_bytes(self._kept().sent(), self.message_wire, self.elements)
        super().before_step(optimizer)


def bytes_of(keep: float) -> list[float]:
    """Return the bytes that this node sends in the steps, and the least for the messages of these."""
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    strategy = Counted(keep)
    strategy.elements = sum(parameter.numel() for parameter in parameters)
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    hvd.DistributedOptimizer(optimizer, strategy=strategy)
    generator = torch.Generator().manual_seed(hvd.rank())
    before = 0
    for step in range(WARMUPS + STEPS):
        if step == WARMUPS:
            strategy.message = 0
            hvd.barrier()
            before = int(SENT.read_text())
        optimizer.zero_grad()
        losses = [(p * torch.randn(p.shape, generator=generator)).sum() for p in reversed(parameters)]
        torch.stack(losses).sum().backward()
        optimizer.step()
    hvd.barrier()
    assert strategy.message == pytest.approx(keep * 4 * strategy.elements * STEPS, rel=0.15)
    nodes = hvd.cross_size()
    return [int(SENT.read_text()) - before, 2 * (nodes - 1) / nodes * strategy.message]


def main() -> None:
    """Train with each part in turn."""
    hvd.init()
    torch.set_num_threads(1)
    folder, *keeps = sys.argv[1:]
    found = {keep: bytes_of(float(keep)) for keep in keeps}
    (Path(folder) / f"{hvd.rank()}.json").write_text(json.dumps(found))
    hvd.shutdown()


if __name__ == "__main__":
    main()
