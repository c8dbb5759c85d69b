"""The ranks of one node die while the other node waits for a transfer that rank 2 never begins."""

from __future__ import annotations

import os
import threading
import time

import torch

import roundelay.torch as hvd
from rank_here import POLL_S, Rank


def node_1_dies(me: Rank) -> None:
    node, place = divmod(me.number, 2)
    os.environ.update(ROUNDELAY_NODE_ID=str(node), LOCAL_RANK=str(place))
    me.init()
    weight = torch.nn.Parameter(torch.zeros(1 << 16))
    strategy = hvd.strategies.DASO(2, 1, warmup_epochs=0, cooldown_epochs=0, total_epochs=1)
    plain = torch.optim.SGD([weight], lr=1.0)
    optimizer = hvd.DistributedOptimizer(plain, [("weight", weight)], strategy=strategy)

    def step() -> None:
        optimizer.zero_grad()
        (weight * (me.number + 1)).sum().backward()
        optimizer.step()

    def tell_of_waiting() -> None:
        while hvd.stats()["late_merges"] == 0:
            time.sleep(POLL_S)
        me.tell("waits")

    if node == 1:
        me.wait_for("waits")
        me.die()
    step()
    if me.number == 0:
        threading.Thread(target=tell_of_waiting, daemon=True).start()
    with me.watched():
        step()
