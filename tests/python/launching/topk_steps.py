"""Steps with TopK on two nodes: the bytes that a node sends, beside those of the formula.

python topk_steps.py FOLDER DENSITY ...     writes FOLDER/N.json on rank N: by strategy, [bytes, least]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import roundelay.torch as hvd

SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")
SHAPES = [(1000,), (64, 60_000), (3000, 1100), (50,), (2048, 2048), (1025, 4095)]  # 59 MiB
PAIRS = {"": (8, 4), ",index_bits=16": (6, 4), ",index_bits=16,wire=bf16": (4, 2)}  # bytes; those of a value
WARMUPS, STEPS = 4, 3


def bytes_of(strategy: str, gradients: list[torch.Tensor]) -> int:
    """Return the bytes that this node sends in the steps, of these gradients each time."""
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    hvd.DistributedOptimizer(optimizer, strategy=strategy)
    before = 0
    for step in range(WARMUPS + STEPS):
        if step == WARMUPS:
            hvd.barrier()
            before = int(SENT.read_text())
        optimizer.zero_grad()
        losses = [(p * g).sum() for p, g in zip(parameters, gradients, strict=True)]
        torch.stack(losses[::-1]).sum().backward()
        optimizer.step()
    hvd.barrier()
    return int(SENT.read_text()) - before


def least(density: float, pair: int, value: int) -> float:
    """Return the bytes of the formula: (m - 1) x density x d pairs, and the small parameters."""
    sizes = [torch.Size(shape).numel() for shape in SHAPES]
    lossy = sum(size for size in sizes if size >= 4096)
    return STEPS * (hvd.cross_size() - 1) * (density * lossy * pair + (sum(sizes) - lossy) * value)


def main() -> None:
    """Train with each setting in turn."""
    hvd.init()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(hvd.rank())
    gradients = [torch.randn(shape, generator=generator) for shape in SHAPES]
    folder, *densities = sys.argv[1:]
    found = {}
    for more, (pair, value) in PAIRS.items():
        for density in map(float, densities):
            text = f"topk:density={density},select=auto{more}"
            found[text] = [bytes_of(text, gradients), least(density, pair, value)]
    (Path(folder) / f"{hvd.rank()}.json").write_text(json.dumps(found))
    hvd.shutdown()


if __name__ == "__main__":
    main()
