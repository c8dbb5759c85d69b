"""Steps that repeat go by a locked schedule; what does not fit in ends the lock and loses nothing."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

import roundelay.torch as hvd
from in_time import wait_until
from meeting import PATIENCE_S, meeting
from ranks import Check, run_check
from small_gradients import add_gradients, gradient_of, make_parameters, sum_of_ranks, use_pool, wrapped_sgd

LOCKS = os.environ.get("ROUNDELAY_SCHEDULE_LOCK") != "0"


@pytest.mark.parametrize("np", [2, 4])
def test_schedule_lock(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.parametrize("on_node", [2, pytest.param(1, marks=pytest.mark.nightly)])
def test_schedule_lock_between_nodes(on_node: int, check: Check) -> None:
    each = f"ROUNDELAY_NODE_ID=n$((RANK / {on_node})) LOCAL_RANK=$((RANK % {on_node}))"
    run_check(check, 4, env={"ROUNDELAY_FAN_OUT": "2"}, each=each, mpi=False)


@pytest.mark.slow
def test_without_a_schedule_lock(check: Check) -> None:
    run_check(check, 2, env={"ROUNDELAY_SCHEDULE_LOCK": "0"})


def _counts() -> dict[str, int]:
    names = ("locked_operations", "schedule_locks", "schedule_unlocks", "reports_sent", "orders_given")
    stats = hvd.stats()
    return {name: stats[name] for name in names}


@contextlib.contextmanager
def _counted() -> Iterator[dict[str, int]]:
    """What was counted in the block, when it is over."""
    before = _counts()
    work: dict[str, int] = {}
    yield work
    work.update({name: value - before[name] for name, value in _counts().items()})


def _start_again() -> None:
    """So that no earlier check asks for more evidence."""
    hvd.shutdown()
    hvd.init()


class _Training:
    def __init__(self, number: int = 6) -> None:
        _start_again()
        self.parameters = make_parameters(number)
        self.optimizer = wrapped_sgd(self.parameters)
        use_pool(self.optimizer)

    def step(self, used: int | None = None) -> None:
        self.optimizer.zero_grad()
        factors = [(p, (hvd.rank() + 1.0) * (i + 1)) for i, p in enumerate(self.parameters[:used])]
        add_gradients(*factors)
        self.optimizer.step()
        for index, (parameter, _) in enumerate(factors):
            assert gradient_of(parameter) == [sum_of_ranks() * (index + 1)] * 3

    def until_locked(self) -> None:
        """Steps until two in a row are locked. All ranks stop at the same step, as they count the same."""
        in_a_row = 0
        for _ in range(100):
            with _counted() as work:
                self.step()
            in_a_row = in_a_row + 1 if work["locked_operations"] >= 2 else 0
            if in_a_row == 2 or not LOCKS:
                return
        raise AssertionError("the steps are not locked")


def _steps(step: Callable[[], object], number: int) -> float:
    """Takes so many steps, and returns how long the slowest of them took, in seconds."""
    times = [time.monotonic()]
    for _ in range(number):
        step()
        times.append(time.monotonic())
    return max(end - begin for begin, end in itertools.pairwise(times))


def _locked_steps(
    start: Callable[[], Callable[[], object]], number: int, first: Callable[[], object] = lambda: None
) -> dict[str, int]:
    """What was counted in so many steps, after enough steps for a lock, and `first`.

    start: begins a new job and returns its step. If a rank that is late for a second has ended the lock, the
    count is no use: all ranks begin again, twice at most.
    """
    for _ in range(3):
        step = start()
        slowest = _steps(step, 8)
        first()
        with _counted() as work:
            slowest = max(slowest, _steps(step, number))
        # Nobody is in what comes next before all have counted.
        slowest = max(slowest, _steps(step, 1))
        if not hvd.allreduce(torch.tensor(slowest > 0.5), op=hvd.Max).item():
            break
    return work


def check_training_is_locked() -> None:
    work = _locked_steps(lambda: _Training().step, 20)
    if LOCKS:
        assert work["locked_operations"] >= 40, work
        assert work["schedule_unlocks"] == 0, work
        # Not all messages: rank 0 may still answer the pings by which its clock is measured after init.
        assert work["reports_sent"] == work["orders_given"] == 0, work
    else:
        assert work["locked_operations"] == work["schedule_locks"] == 0


def check_weights_that_change_in_each_step() -> None:
    """Only the weights' sum travels, in the agreement: nothing that ranks would have to order anew."""

    def start() -> Callable[[], None]:
        _start_again()
        parameters = make_parameters(6)
        number = itertools.count()
        weights = [1.0] * hvd.size()
        plain = torch.optim.SGD(parameters, lr=1.0)
        optimizer = hvd.DistributedOptimizer(plain, weight=lambda: weights[hvd.rank()])
        use_pool(optimizer)

        def step() -> None:
            weights[:] = [1.0] * hvd.size()
            weights[next(number) % hvd.size()] = 1.0 + hvd.size()  # so that their sum is 2 * size
            optimizer.zero_grad()
            add_gradients(*((p, 16.0 * hvd.rank()) for p in parameters))
            mean = sum(16.0 * rank * weight for rank, weight in enumerate(weights)) / sum(weights)
            assert [gradient_of(p) for p in parameters] == [[mean] * 3] * 6
            optimizer.step()

        return step

    work = _locked_steps(start, 20)
    if LOCKS:
        assert work["locked_operations"] >= 40, work
        assert work["schedule_unlocks"] == work["reports_sent"] == work["orders_given"] == 0, work


def check_the_same_bits_as_by_order() -> None:
    """Both runs sum numbers that round; the second one ends the lock in each step."""
    results = []
    for surprising in (False, True):
        torch.manual_seed(hvd.rank())
        parameters = make_parameters(4, 1000)
        optimizer = wrapped_sgd(parameters)
        for step in range(12):
            optimizer.zero_grad()
            torch.stack([(p * torch.randn(1000)).sum() for p in parameters]).sum().backward()
            if surprising:
                hvd.allreduce(torch.ones(1), name=f"surprise.{step}")
            optimizer.step()
        results.append([p.detach().clone() for p in parameters])
    assert all(map(torch.equal, *results))


def check_a_metric_in_every_third_step() -> None:
    training = _Training()
    with _counted() as work:
        for step in range(45):
            training.step()
            if step % 3 == 2:
                total = hvd.allreduce(torch.ones(2), name="metric", op=hvd.Sum)
                assert total.tolist() == [hvd.size()] * 2
    if LOCKS:
        assert work["locked_operations"] > 0, work


def check_a_metric_now_and_then_within_a_step() -> None:
    training = _Training()
    with _counted() as work:
        for step in range(40):
            training.optimizer.zero_grad()
            add_gradients(*((p, hvd.rank() + 1.0) for p in training.parameters))
            if step in (12, 13, 29):
                total = hvd.allreduce(torch.ones(2), op=hvd.Sum)  # unnamed, between backward() and step()
                assert total.tolist() == [hvd.size()] * 2
            training.optimizer.step()
            assert gradient_of(training.parameters[0]) == [sum_of_ranks()] * 3
    if LOCKS:
        assert work["schedule_unlocks"] >= 1, work
        assert work["schedule_locks"] >= 2, work


def check_a_layer_that_is_unused_now_and_then() -> None:
    training = _Training()
    for step in range(30):
        training.step(used=3 if step % 10 == 9 else None)


def _wait_for_more_unlocks(unlocks: int) -> None:
    if LOCKS:
        wait_until(lambda: hvd.stats()["schedule_unlocks"] > unlocks, PATIENCE_S, "nobody ends the lock")


def check_only_one_rank_works_for_a_while() -> None:
    """The others wait for longer than a lock's patience, which ends it, and go on when rank 0 comes."""
    training = _Training()
    with meeting() as ranks:
        training.until_locked()
        with _counted() as work:
            unlocks = hvd.stats()["schedule_unlocks"]
            ranks.tell("counts")
            ranks.wait_for("counts", *range(hvd.size()))
            if hvd.rank() == 0:
                _wait_for_more_unlocks(unlocks)
            training.step()
    if LOCKS:
        assert work["schedule_unlocks"] == 1, work
    for _ in range(3):
        training.step()


def check_blocking_operations_of_a_name() -> None:
    _start_again()
    with _counted() as work:
        for step in range(50):
            total = hvd.allreduce(torch.full((3,), float(step)), name="again", op=hvd.Sum)
            assert total.tolist() == [step * hvd.size()] * 3
    if LOCKS:
        assert work["locked_operations"] > 30, work


def check_an_error_of_one_rank() -> None:
    for _ in range(10):
        hvd.allreduce(torch.ones(3), name="error")
    shape = 4 if hvd.rank() == 0 else 3
    with pytest.raises(hvd.HorovodInternalError, match="error"):
        hvd.allreduce(torch.ones(shape), name="error")
    for _ in range(10):
        assert hvd.allreduce(torch.ones(3), name="error").tolist() == [1.0] * 3


def check_a_locked_process_set() -> None:
    evens = hvd.add_process_set(list(range(0, hvd.size(), 2)))
    for _ in range(20):
        hvd.allreduce(torch.ones(2), name="world")
        if evens.included():
            total = hvd.allreduce(torch.ones(2), name="set", op=hvd.Sum, process_set=evens)
            assert total.tolist() == [evens.size()] * 2
    assert hvd.remove_process_set(evens)


def _kill_once_it_waits(exposed_ns: int) -> None:
    """Sends SIGUSR1 when the program has waited 0.2 s longer than that for an operation, and still waits."""
    while hvd.stats()["exposed_ns"] < exposed_ns + 200_000_000:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGUSR1)


def check_signals_while_a_peer_is_late() -> None:
    with meeting() as ranks:
        for _ in range(10):
            hvd.allreduce(torch.ones(2), name="late")
        if hvd.rank() == 0:

            def interrupt(*_: object) -> None:
                raise KeyboardInterrupt

            previous = signal.signal(signal.SIGUSR1, interrupt)
            exposed = hvd.stats()["exposed_ns"]
            threading.Thread(target=_kill_once_it_waits, args=(exposed,), daemon=True).start()
            with pytest.raises(KeyboardInterrupt):
                hvd.allreduce(torch.ones(2), name="late")
            signal.signal(signal.SIGUSR1, previous)
            ranks.tell("interrupted")
        else:
            ranks.wait_for("interrupted", 0)
            hvd.allreduce(torch.ones(2), name="late")
    for _ in range(5):
        assert hvd.allreduce(torch.ones(2), name="after.late").tolist() == [1.0] * 2


def check_a_locked_rank_that_does_nothing_sleeps() -> None:
    def step() -> torch.Tensor:
        return hvd.allreduce(torch.ones(2), name="idle")

    def start() -> Callable[[], object]:
        _start_again()
        return step

    attempts = itertools.count()
    with meeting() as ranks:

        def do_nothing() -> None:
            time.sleep(2.5)  # the lane's thread has looked once more
            use = resource.getrusage(resource.RUSAGE_SELF)
            time.sleep(2.0)
            now = resource.getrusage(resource.RUSAGE_SELF)
            assert now.ru_nvcsw - use.ru_nvcsw <= 5
            event = f"did nothing.{next(attempts)}"
            ranks.tell(event)
            ranks.wait_for(event, *range(hvd.size()))

        work = _locked_steps(start, 5, do_nothing)
    if LOCKS:
        assert work["locked_operations"] == 5, work


def check_join_out_of_a_lock() -> None:
    training = _Training()
    for _ in range(10 + 2 * hvd.rank()):
        training.optimizer.zero_grad()
        add_gradients(*((p, 1.0) for p in training.parameters))
        training.optimizer.step()
    assert hvd.join() == hvd.size() - 1
