"""Steps with DASO on two nodes: the bytes that a node sends, beside those of its transfers.

python daso_steps.py FOLDER SKIP ...     writes FOLDER/N.json on rank N: by SKIP, [bytes sent, least bytes]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import roundelay.torch as hvd

SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")
ELEMENTS = 1 << 21  # 8 MiB
STEPS = 16


def bytes_of(every: int) -> list[float]:
    """Return the bytes that this node sends in the steps and an average, and the least for these."""
    weight = torch.nn.Parameter(torch.zeros(ELEMENTS))
    strategy = hvd.strategies.DASO(every, 1, warmup_epochs=0, cooldown_epochs=0, total_epochs=1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), strategy=strategy)

    def train() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad()
            weight.sum().backward()
            optimizer.step()
        strategy.average()
        hvd.barrier()

    train()
    before = int(SENT.read_text())
    train()
    nodes = hvd.cross_size()
    message = 2 * (nodes - 1) / nodes * 4 * ELEMENTS
    return [int(SENT.read_text()) - before, message * (STEPS / every + 1)]


def main() -> None:
    """Train with each skip in turn."""
    hvd.init()
    torch.set_num_threads(1)
    folder, *skips = sys.argv[1:]
    found = {every: bytes_of(int(every)) for every in skips}
    (Path(folder) / f"{hvd.rank()}.json").write_text(json.dumps(found))
    hvd.shutdown()


if __name__ == "__main__":
    main()
