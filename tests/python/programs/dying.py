"""Ranks of which one is killed: in the midst of an operation, before init(), while others leave."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch

import roundelay.torch as hvd
from rank_here import Rank, during


def waits(me: Rank, victim: int) -> None:
    """For what the victim never submits."""
    if me.number != victim:
        with me.watched():
            hvd.allreduce(torch.ones(3), name="never.submitted")
    time.sleep(60)


def joins(me: Rank, victim: int) -> None:
    if me.number != victim:
        with me.watched():
            hvd.join()
    time.sleep(60)


def reduces_little(me: Rank, _: int) -> None:
    with me.watched():
        while True:
            hvd.allreduce(torch.ones(3), name="small", op=hvd.Sum)


def reduces_much(me: Rank, _: int) -> None:
    big = torch.ones(16 << 20)
    with me.watched():
        while True:
            hvd.allreduce_(big, name="big", op=hvd.Min)


def meets_at_barriers(me: Rank, _: int) -> None:
    with me.watched():
        while True:
            hvd.barrier()


def trains(me: Rank, _: int) -> None:
    step = training()
    with me.watched():
        while True:
            step()


# What the survivors do when the victim dies; the victim dies in the middle of it.
WORK: dict[str, Callable[[Rank, int], None]] = {
    "waiting": waits,
    "small": reduces_little,
    "big": reduces_much,
    "barrier": meets_at_barriers,
    "join": joins,
    "step": trains,
}


def training() -> Callable[[], None]:
    """Returns a step, after a first one with all ranks alive: it takes long on a busy machine."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())

    def step() -> None:
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()

    step()
    return step


def dies_while_all_work(me: Rank, work: str, victim: int) -> None:
    me.init()
    if me.number == victim:
        me.die_watched(0.7, hvd.size())
    WORK[work](me, victim)


def dies_when_all_is_submitted(me: Rank) -> None:
    """Rank 0 notes the texts of all its handles' errors."""
    me.init()
    if me.number == 1:
        me.wait_for("go")
        me.die()
    model = torch.nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    model.weight.register_post_accumulate_grad_hook(lambda _: me.tell("go"))
    handles = [
        hvd.allreduce_async(torch.ones(3), name="a"),
        hvd.grouped_allreduce_async([torch.ones(3), torch.ones(4)], name="g"),
        hvd.broadcast_async(torch.ones(3), 0, name="b"),
        hvd.allgather_async(torch.ones(3)),
    ]
    texts: list[str] = []

    def failed(call: Callable[[], object]) -> None:
        try:
            call()
        except hvd.HorovodInternalError as error:
            texts.append(str(error))

    failed(lambda: model(torch.ones(4)).backward())
    for handle in handles:
        failed(partial(hvd.synchronize, handle))
    me.note(Exception("\n".join(texts)))


def dies_before_init(me: Rank, victim: int) -> None:
    if me.number == victim:
        during(0.0, me.die)
        time.sleep(60)
    me.init()


def dies_while_others_shut_down(me: Rank) -> None:
    me.init()
    if me.number == 1:
        during(1.0, me.die)
        time.sleep(60)
    hvd.shutdown()
