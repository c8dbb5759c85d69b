"""A rank is killed within a CSC step, where csc writes which chunks it has chosen. Then the job starts again.

Each rank's gradient is its number and one, everywhere. So the first half of the chunks is sent first.
"""

from __future__ import annotations

import mmap
import warnings
from pathlib import Path
from typing import Any

import torch

import roundelay.torch as hvd
import traps
from rank_here import Rank
from techniques_of import state_of_one_bucket

ELEMENTS, CHUNK = 1 << 16, 4


class Training:
    """One parameter with strategy csc."""

    def __init__(self, me: Rank) -> None:
        me.init()
        self.rank = me.number
        self.weight = torch.nn.Parameter(torch.zeros(ELEMENTS))
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([self.weight], lr=1.0, momentum=0.5),
            [("weight", self.weight)],
            op=hvd.Sum,
            strategy=f"csc:keep=0.5,chunk_elements={CHUNK},dense_below=0",
        )

    def step(self) -> Any:
        """Returns which part was sent; None: all of it."""
        self.optimizer.zero_grad()
        (self.weight * (self.rank + 1)).sum().backward()
        every = hvd.strategies.of(self.optimizer).context.keeper().sent()
        self.optimizer.step()
        return every[0].part if every else None

    def state(self) -> torch.Tensor:
        """Returns the bytes of csc's state: what is kept back, two norms a chunk, the chosen chunks."""
        return state_of_one_bucket(self.optimizer)


def _checkpoint(me: Rank) -> Path:
    return me.folder / "checkpoint.pt"


def dies_in_a_step(me: Rank) -> None:
    training = Training(me)
    while training.step() is None:
        pass
    if me.number == 0:
        saved = {"weight": training.weight.detach(), "optimizer": training.optimizer.state_dict()}
        torch.save(saved, _checkpoint(me))
    hvd.barrier()
    if me.number == 1:
        _die_on_writing(me, training.state())
    with me.watched():
        training.step()


def _die_on_writing(me: Rank, own: torch.Tensor) -> None:
    def kill() -> None:
        norms = own[4 * ELEMENTS : 4 * ELEMENTS + 4].view(torch.float32)
        me.tell("norm", str(norms.item()))
        me.die()

    traps.on_write(kill)
    indices = own.data_ptr() + own.numel() - 4 * ELEMENTS // CHUNK
    page = traps.page_from(indices)
    assert page + mmap.PAGESIZE <= indices + 2 * ELEMENTS // CHUNK  # half of the chunks are chosen
    traps.protect(page, mmap.PAGESIZE, mmap.PROT_READ)


def goes_on_from_the_checkpoint(me: Rank) -> None:
    training = Training(me)
    warnings.simplefilter("always")
    saved = torch.load(_checkpoint(me))
    with torch.no_grad():
        training.weight.copy_(saved["weight"])
    training.optimizer.load_state_dict(saved["optimizer"])
    while (part := training.step()) is None:
        pass
    sent = torch.zeros(ELEMENTS // CHUNK, dtype=torch.bool)
    sent[part.chunks.long()] = True
    kept = training.state()[: 4 * ELEMENTS].view(torch.float32)
    assert sent.sum() == ELEMENTS // CHUNK // 2
    of_this_step_alone = torch.where(sent.repeat_interleave(CHUNK), 0.0, me.number + 1.0)
    assert torch.equal(kept, of_this_step_alone)
    training.step()
    me.tell(f"went on.{me.number}")
    hvd.shutdown()
