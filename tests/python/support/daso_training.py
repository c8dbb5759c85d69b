"""DASO in tests: ranks that take themselves for several nodes, and a model that they train."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

import roundelay.torch as hvd
from roundelay.torch.strategies import DASO
from sequential_local_sgd import loss_of, make_model, momentum


@contextmanager
def nodes_of(each: int) -> Iterator[list[list[int]]]:
    """Makes another job of these ranks, with so many on a node, and a rest on the last one."""
    ranks, node = range(hvd.size()), hvd.rank() // each
    hvd.shutdown()
    os.environ["ROUNDELAY_NODE_ID"] = str(node)
    hvd.init()
    try:
        yield [list(ranks[begin : begin + each]) for begin in range(0, len(ranks), each)]
        hvd.barrier()  # a rank that leaves ends what others have on the wire
    finally:
        hvd.shutdown()
        del os.environ["ROUNDELAY_NODE_ID"]
        hvd.init()


def layouts() -> list[int]:
    """Numbers of ranks on a node: one, two, half of them, and all but one."""
    size = hvd.size()
    return sorted({each for each in (1, 2, size // 2, size - 1) if 0 < each < size})


def daso(*skips: int, **arguments: Any) -> DASO:
    """Returns a strategy that never blocks but at the ends of epochs, in the parameters' own type."""
    defaults: dict[str, Any] = {"warmup_epochs": 0, "cooldown_epochs": 0, "total_epochs": 99}
    return DASO(*skips, **{**defaults, "blocking_wire": None, **arguments})


class Training:
    """A model that a strategy trains."""

    def __init__(self, strategy: DASO | str, make: Any = momentum, **arguments: Any) -> None:
        self.model = make_model()
        self.optimizer: Any = hvd.DistributedOptimizer(
            make(list(self.model.parameters())), self.model.named_parameters(), strategy=strategy, **arguments
        )
        self.steps = 0

    @property
    def strategy(self) -> DASO:
        strategy = hvd.strategies.of(self.optimizer)
        assert isinstance(strategy, DASO)
        return strategy

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [one.detach() for one in self.model.parameters()]

    def run(self, steps: int, ends: bool = False) -> Training:
        """Trains; ends: that is the end of an epoch."""
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss_of(self.model, hvd.rank(), self.steps).backward()
            self.optimizer.step()
            self.steps += 1
        if ends:
            self.strategy.epoch_ended(1.0)
        return self

    def state(self) -> list[dict[str, Any]]:
        return [copy.deepcopy(one.state_dict()) for one in (self.model, self.optimizer, self.strategy)]

    def equal_everywhere(self) -> bool:
        flat = torch.cat([one.flatten() for one in self.parameters])
        same = all(torch.equal(one, flat) for one in hvd.allgather(flat.unsqueeze(0)))
        return bool(hvd.allreduce(torch.tensor([int(same)]), op=hvd.Min))


def close(these: Sequence[torch.Tensor], those: Sequence[torch.Tensor]) -> None:
    for one, other in zip(these, those, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)
