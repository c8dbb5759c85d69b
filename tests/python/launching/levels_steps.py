"""Allreduces on nodes of a rig: the sums, and the bytes that a node sends.

python levels_steps.py FOLDER     writes FOLDER/N.json on rank N: fabric, bytes of the tensor, bytes sent
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import roundelay.torch as hvd
from roundelay import _core

SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")
COUNT = 2_000_003
REPEATS = 4


def main() -> None:
    """Sum tensors of a size that divides evenly by nothing, in many types, then count the bytes of one."""
    hvd.init()
    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
        for count in (1, 5, 4099, COUNT):
            values = (torch.arange(count) * 3 + hvd.rank()) % 3
            total = sum((torch.arange(count) * 3 + rank) % 3 for rank in range(hvd.size()))
            got = hvd.allreduce(values.to(dtype), op=hvd.Sum, name=f"{dtype}.{count}")
            assert torch.equal(got, torch.as_tensor(total).to(dtype)), (dtype, count)
    tensor = torch.ones(COUNT)
    hvd.barrier()
    before = int(SENT.read_text())
    for _ in range(REPEATS):
        hvd.allreduce_(tensor, op=hvd.Average, name="counted")
    hvd.barrier()
    found = [_core.transports()["fabric"], REPEATS * COUNT * 4, int(SENT.read_text()) - before]
    (Path(sys.argv[1]) / f"{hvd.rank()}.json").write_text(json.dumps(found))
    hvd.shutdown()


if __name__ == "__main__":
    main()
