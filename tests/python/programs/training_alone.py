"""Ranks that take a step of an optimizer which nobody has wrapped, and what they do beside it."""

from __future__ import annotations

from collections.abc import Callable

import torch

import roundelay.torch as hvd
from rank_here import Rank


class _Training:
    """One model, and one optimizer that is not wrapped."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(2, 1)
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)

    def step(self, between: Callable[[], object] = lambda: None) -> None:
        self.model(torch.ones(1, 2)).sum().backward()
        between()
        self.optimizer.step()

    def gradients(self) -> list[torch.Tensor]:
        return [one.grad for one in self.model.parameters() if one.grad is not None]


def takes_a_step(me: Rank) -> None:
    me.init()
    _Training().step()


def takes_a_step_and_shuts_down(me: Rank) -> None:
    me.init()
    _Training().step()
    hvd.shutdown()


def takes_a_step_and_fails(me: Rank) -> None:
    me.init()
    _Training().step()
    raise KeyError("batch")


def has_wrapped_another_optimizer(me: Rank) -> None:
    me.init()
    training = _Training()
    hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0))
    training.step()


def reduces_each_gradient(me: Rank) -> None:
    me.init()
    training = _Training()
    training.step(lambda: [hvd.allreduce_(one) for one in training.gradients()])


def gathers_each_gradient(me: Rank) -> None:
    me.init()
    training = _Training()
    training.step(lambda: [one.copy_(hvd.allgather(one[None]).mean(0)) for one in training.gradients()])


def reduces_a_group(me: Rank) -> None:
    me.init()
    training = _Training()
    training.step(lambda: hvd.grouped_allreduce_(training.gradients()))


def reduces_in_a_hook(me: Rank) -> None:
    me.init()
    training = _Training()

    def reduce(*_: object) -> None:
        hvd.allreduce_(training.gradients()[-1])

    training.optimizer.register_step_pre_hook(reduce)
    training.step()


def is_one_of_which_rank_0_alone_calls_init(me: Rank) -> None:
    if me.number == 0:
        hvd.init(comm=[0])
