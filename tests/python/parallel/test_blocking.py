"""Blocking calls, for which the coordination thread is not woken: nobody is forgotten who waits for one."""

from __future__ import annotations

import functools
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
import torch

import roundelay.torch as hvd
from in_time import wait_until
from meeting import PATIENCE_S, meeting
from ranks import Check, run_check

ROUNDS = 200


@pytest.mark.parametrize("np", [2, 4])
def test_blocking(np: int, check: Check) -> None:
    run_check(check, np)


class RungError(Exception):
    pass


def requests() -> int:
    """How many this rank has reported."""
    counters = hvd.stats()
    return counters["full_requests"] + counters["cached_requests"]


def wait_for_requests(number: int) -> None:
    while requests() < number:
        time.sleep(0.01)


@contextmanager
def rung_in_the_next_operation() -> Iterator[None]:
    """Rings when it is submitted, not earlier: who was interrupted before would have no part in it."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise RungError

    def wait_and_ring(number: int) -> None:
        wait_for_requests(number)
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, ring)
    ringer = threading.Thread(target=wait_and_ring, args=(requests() + 1,))
    ringer.start()
    yield
    ringer.join()
    signal.signal(signal.SIGUSR1, before)


def check_who_is_interrupted_has_its_part_in_the_call() -> None:
    """The others' operation is completed while the interrupted rank calls nothing."""
    for culprit in (0, hvd.size() - 1):
        others = [rank for rank in range(hvd.size()) if rank != culprit]
        with meeting() as ranks:
            if hvd.rank() == culprit:
                with rung_in_the_next_operation(), pytest.raises(RungError):
                    hvd.allreduce(torch.ones(4), name="interrupted", op=hvd.Sum)
                ranks.tell("interrupted")
                ranks.wait_for("completed", *others)
            else:
                ranks.wait_for("interrupted", culprit)
                total = hvd.allreduce(torch.ones(4), name="interrupted", op=hvd.Sum)
                ranks.tell("completed")
                assert total.tolist() == [hvd.size()] * 4


def check_who_is_interrupted_while_another_thread_drives() -> None:
    with meeting() as ranks:
        if hvd.rank() == 0:
            before = requests()
            other = threading.Thread(target=lambda: hvd.allreduce(torch.ones(2), name="other", op=hvd.Sum))
            other.start()
            wait_for_requests(before + 1)
            with rung_in_the_next_operation(), pytest.raises(RungError):
                hvd.allreduce(torch.ones(4), name="interrupted", op=hvd.Sum)
            ranks.tell("interrupted")
            ranks.wait_for("completed", *range(1, hvd.size()))
            other.join(PATIENCE_S)
            assert not other.is_alive()
        else:
            ranks.wait_for("interrupted", 0)
            total = hvd.allreduce(torch.ones(4), name="interrupted", op=hvd.Sum)
            ranks.tell("completed")
            assert total.tolist() == [hvd.size()] * 4
            hvd.allreduce(torch.ones(2), name="other", op=hvd.Sum)


def in_threads(*works: object) -> None:
    errors: list[BaseException] = []

    def run(work: object) -> None:
        try:
            assert callable(work)
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def check_threads_that_block_at_once() -> None:
    def work(name: str) -> None:
        for count in range(ROUNDS):
            total = hvd.allreduce(torch.full((64,), hvd.rank()), name=name, op=hvd.Sum)
            assert total.tolist() == [sum(range(hvd.size()))] * 64, count
            rows = hvd.allgather(torch.tensor([hvd.rank()]), name=f"{name}.rows")
            assert rows.tolist() == list(range(hvd.size()))

    in_threads(*(lambda name=f"thread {number}": work(name) for number in range(2)))


def check_threads_that_block_in_sets_that_overlap() -> None:
    shapes = [list(range(hvd.size())), [0, 1], sorted({0, hvd.size() - 1, hvd.size() // 2})]
    if hvd.size() == 2:
        shapes = [[0, 1], [0], [1]]
    sets = [hvd.global_process_set, *(hvd.add_process_set(ranks) for ranks in shapes[1:])]

    def work(ranks: list[int], group: hvd.ProcessSet) -> None:
        for count in range(ROUNDS):
            total = hvd.allreduce(torch.ones(8), name="same name", op=hvd.Sum, process_set=group)
            assert total.tolist() == [len(ranks)] * 8, count
            hvd.barrier(process_set=group)

    mine = [(ranks, group) for ranks, group in zip(shapes, sets, strict=True) if hvd.rank() in ranks]
    in_threads(*(lambda pair=pair: work(*pair) for pair in mine))
    for group in sets[1:]:
        assert hvd.remove_process_set(group)


def check_who_computes_after_a_blocking_call_is_reached() -> None:
    """Nobody drives on that rank: its coordination thread must hear what the others report."""
    for count in range(ROUNDS):
        resting = count % hvd.size()
        handle = hvd.allreduce_async(torch.ones(4), name="early", op=hvd.Sum) if hvd.rank() == resting else -1
        hvd.allreduce(torch.ones(16), name="between")
        if hvd.rank() == resting:
            complaint = f"round {count}: what the others submitted never came"
            wait_until(functools.partial(hvd.poll, handle), PATIENCE_S, complaint)
            total = hvd.synchronize(handle)
        else:
            total = hvd.allreduce(torch.ones(4), name="early", op=hvd.Sum)
        assert total.tolist() == [hvd.size()] * 4


def check_blocking_beside_what_is_in_flight() -> None:
    """The caller finds work in its lane, or brings its own operation behind it."""
    large = torch.ones(1 << 20)
    for count in range(ROUNDS // 10):
        handle = hvd.allreduce_async(large, name="large", op=hvd.Sum)
        for _ in range(3):
            assert hvd.allreduce(torch.tensor([count]), name="small", op=hvd.Sum).item() == count * hvd.size()
        assert hvd.synchronize(handle)[-1].item() == hvd.size()


def check_every_blocking_operation() -> None:
    size, rank = hvd.size(), hvd.rank()
    assert hvd.broadcast(torch.tensor([rank]), 1).item() == 1
    assert hvd.broadcast_(torch.tensor([rank]), 0).item() == 0
    assert hvd.allreduce_(torch.tensor([1]), op=hvd.Sum).item() == size
    first, second = hvd.grouped_allreduce([torch.ones(1), torch.ones(2)], op=hvd.Sum)
    assert (first.tolist(), second.tolist()) == ([size], [size] * 2)
    tensors = [torch.ones(1), torch.ones(2)]
    assert hvd.grouped_allreduce_(tensors, op=hvd.Sum)[1] is tensors[1]
    assert hvd.grouped_allreduce([]) == hvd.grouped_allgather([]) == hvd.grouped_reducescatter([]) == []
    assert hvd.alltoall(torch.arange(size)).tolist() == [rank] * size
    _, received = hvd.alltoall(torch.arange(size), splits=[1] * size)
    assert received.tolist() == [1] * size
    assert hvd.reducescatter(torch.ones(size, 2), op=hvd.Sum).tolist() == [[size] * 2]
    assert hvd.join() in range(size)
