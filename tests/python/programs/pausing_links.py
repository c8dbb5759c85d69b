"""Operations of one kind after the other, over nodes in racks, while links pause."""

from __future__ import annotations

import time

import torch

import roundelay.torch as hvd
from rank_here import Rank
from roundelay import _core

KINDS = ("allreduce", "allgather", "reducescatter", "broadcast")
_COUNT = 600_000  # an operation takes much longer than the message that ends its kind


def _part(rank: int) -> torch.Tensor:
    return ((torch.arange(_COUNT) * 3 + rank) % 7).float()


def _is_right(kind: str) -> bool:
    parts = [_part(rank) for rank in range(hvd.size())]
    mine, total = parts[hvd.rank()], torch.stack(parts).sum(0)
    if kind == "allreduce":
        return torch.equal(hvd.allreduce(mine, op=hvd.Sum, name=kind), total)
    if kind == "allgather":
        return torch.equal(hvd.allgather(mine, name=kind), torch.cat(parts))
    if kind == "broadcast":
        last = hvd.size() - 1
        return torch.equal(hvd.broadcast(mine, last, name=kind), parts[last])
    rows = _COUNT // hvd.size()
    shard = hvd.reducescatter(mine, op=hvd.Sum, name=kind)
    return torch.equal(shard, total[rows * hvd.rank() : rows * (hvd.rank() + 1)])


def move_until_enough(me: Rank, long_s: float) -> None:
    """Repeats each kind until the test has seen enough of it.

    Tells of each operation that is right, and at last how many of a kind took `long_s` seconds or more.
    """
    hvd.init()
    torch.set_num_threads(1)
    rank = hvd.rank()
    for kind in KINDS:
        done, long = False, 0
        while not done:
            begin = time.monotonic()
            assert _is_right(kind), kind
            me.tell(f"step.{kind}.{rank}")
            enough = torch.tensor((me.folder / f"enough.{kind}").exists())
            done = bool(hvd.allreduce(enough, op=hvd.Max, name="enough"))
            long += time.monotonic() - begin >= long_s
        me.tell(f"long.{kind}.{rank}", str(long))
    me.tell(f"went_on.{rank}", _core.transports()["fabric"])
    hvd.shutdown()
