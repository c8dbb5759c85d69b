"""What operations cost, counted and not timed: bytes copied, messages, wake-ups."""

from __future__ import annotations

import time

import torch

import roundelay.torch as hvd
from ranks import Check, run_check
from small_gradients import use_pool

CONTROL = ("messages_sent", "wakeups_sent", "wakes", "sleeps")


def test_work_is_counted(check: Check) -> None:
    run_check(check, 2, env={"ROUNDELAY_FABRIC": "shm"})


class Work:
    """What happened since, by counter."""

    def __init__(self) -> None:
        hvd.barrier()
        self._before = hvd.stats()

    def __getitem__(self, name: str) -> int:
        return hvd.stats()[name] - self._before[name]


def check_small_blocking_allreduces() -> None:
    tensor, times = torch.ones(64), 50
    for _ in range(2):  # until the request is in the response cache
        hvd.allreduce(tensor, name="small")
    work = Work()
    for _ in range(times):
        hvd.allreduce(tensor, name="small")
    assert work["bytes_staged"] == times * 256
    assert work["messages_sent"] <= times  # a report up, or an order down
    assert work["wakeups_sent"] <= work["messages_sent"]
    assert work["wakes"] <= 3 * times  # there, staged, over


def check_a_large_allreduce_is_staged_once() -> None:
    tensor = torch.ones(25 << 18)
    work = Work()
    hvd.allreduce_(tensor, name="large")
    assert work["bytes_staged"] == 25 << 20


def check_a_pooled_bucket_is_not_staged() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1 << 18))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), op=hvd.Sum)
    use_pool(optimizer, 1)
    work, steps = Work(), 5
    for _ in range(steps):
        optimizer.zero_grad()
        parameter.sum().backward()
        optimizer.step()
    assert work["bytes"] >= steps << 20
    assert work["bytes_staged"] == 0


def check_an_idle_second() -> None:
    hvd.allreduce(torch.ones(1))
    hvd.barrier()
    time.sleep(0.2)  # what ranks tell each other after the last operation
    before = hvd.stats()
    time.sleep(1)
    now = hvd.stats()
    assert [now[name] for name in CONTROL] == [before[name] for name in CONTROL]
