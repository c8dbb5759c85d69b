"""DASO on ranks that take themselves for several nodes, beside a sequential program of the same formulas."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from ranks import run_checks
from roundelay.errors import MismatchError
from roundelay.torch.strategies import DASO
from sequential_daso import Epoch, Program
from sequential_local_sgd import loss_of, make_model, momentum

warnings.filterwarnings("ignore", "strategy daso.*all ranks are on one node", RuntimeWarning)

_SLOW, _NIGHTLY = pytest.mark.slow, pytest.mark.nightly
_RANKS = (4, pytest.param(2, marks=_SLOW), *(pytest.param(n, marks=_NIGHTLY) for n in (3, 6, 8)))


@pytest.mark.parametrize("np", _RANKS)
def test_daso(np: int) -> None:
    run_checks(__file__, np)


@contextmanager
def nodes_of(each: int) -> Iterator[list[list[int]]]:
    """Makes another job of these ranks, with so many on a node, and a rest on the last one."""
    ranks, node = range(hvd.size()), hvd.rank() // each
    hvd.shutdown()
    os.environ["ROUNDELAY_NODE_ID"] = str(node)
    hvd.init()
    try:
        yield [list(ranks[begin : begin + each]) for begin in range(0, len(ranks), each)]
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
        return [one.state_dict() for one in (self.model, self.optimizer, self.strategy)]

    def equal_everywhere(self) -> bool:
        flat = torch.cat([one.flatten() for one in self.parameters])
        same = all(torch.equal(one, flat) for one in hvd.allgather(flat.unsqueeze(0)))
        return bool(hvd.allreduce(torch.tensor([int(same)]), op=hvd.Min))


def _close(these: Sequence[torch.Tensor], those: Sequence[torch.Tensor]) -> None:
    for one, other in zip(these, those, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)


def _compare(program: Program, training: Training, epochs: Sequence[int], chance: random.Random) -> None:
    """Trains both for epochs of so many batches, and compares each rank's parameters at every end."""
    for batches in epochs:
        skips = training.strategy.skips
        program.run(Epoch(skips.global_skip, skips.batches_to_wait, skips.local_skip, batches))
        training.run(batches)
        training.strategy.epoch_ended(chance.choice((0.5, 1.0, 2.0)))
        _close(training.parameters, program.parameters(hvd.rank()))
        assert training.equal_everywhere()


def check_random_schedules_are_the_sequential_program() -> None:
    for each in layouts():
        with nodes_of(each) as nodes:
            for seed in range(6):
                chance = random.Random(100 * each + seed)
                every = chance.randint(0, 5)
                wait, local = chance.randint(0, every), chance.randint(1, max(every, 1))
                blocking = {"warmup_epochs": chance.randint(0, 1), "cooldown_epochs": chance.randint(0, 1)}
                epochs = [chance.randint(1, 9) for _ in range(5)]
                known = epochs[0] if seed % 2 else None
                if known is not None:
                    epochs = [known] * len(epochs)
                strategy = daso(every, wait, local, **blocking, total_epochs=5, batches_per_epoch=known)
                _compare(Program(nodes, known is not None), Training(strategy), epochs, chance)


def check_parameters_within_an_epoch_are_those_of_the_program() -> None:
    """Also where a transfer begins in the batch in which the one before is merged."""
    for each in layouts():
        with nodes_of(each) as nodes:
            for every, wait in ((1, 1), (3, 3), (4, 1), (4, 3)):
                for batches in range(1, 10):
                    program, training = Program(nodes), Training(daso(every, wait)).run(batches)
                    program.run_without_end(Epoch(every, wait, 1, batches))
                    _close(training.parameters, program.parameters(hvd.rank()))


def check_no_skips_are_plain_averages() -> None:
    for each in layouts():
        with nodes_of(each):
            averaged = Training("local_sgd:period=1").run(6).parameters
            training = Training(daso(0)).run(6)
            if hvd.is_homogeneous():  # nodes count alike for DASO
                _close(training.parameters, averaged)
            assert training.equal_everywhere()


def check_a_half_wire_carries_changes_in_blocking_epochs() -> None:
    with nodes_of(max(1, hvd.size() // 2)):
        exact = Training(daso(0)).run(12).parameters
        for wire in (torch.bfloat16, torch.float16):
            training = Training(daso(0, blocking_wire=wire)).run(12)
            assert training.equal_everywhere()
            for one, other, start in zip(training.parameters, exact, make_model().parameters(), strict=True):
                change = (other - start.detach()).abs().max()
                assert 0 < (one - other).abs().max() < 0.01 * change  # parameters would lose more


def check_bytes_between_nodes_are_dense_by_the_skip() -> None:
    parameter = nn.Parameter(torch.zeros(100_000))

    def sent(strategy: DASO | str) -> int:
        """Returns the bytes of 16 steps, after 8 in which the job measures its links."""
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), strategy=strategy)
        before = 0
        for step in range(24):
            if step == 8:
                before = hvd.stats()["bytes"]
            optimizer.zero_grad()
            parameter.sum().backward()
            optimizer.step()
        if isinstance(strategy, DASO):
            strategy.average()
        return hvd.stats()["bytes"] - before

    with nodes_of(1):
        dense = sent("dense")
        assert abs(dense / (16 * 400_000) - 1) < 0.02
        for every in (1, 4):
            at_the_end = 400_000
            assert abs((sent(daso(every)) - at_the_end) / (dense / every) - 1) < 0.02


def check_a_resumed_run_has_the_bits_of_the_uninterrupted_one() -> None:
    made: list[Callable[[], DASO]] = [
        lambda: daso(4, 3, 2),
        lambda: daso(3, 3, batches_per_epoch=20),
        lambda: daso(4, 2, merge_momentum=True),
        lambda: daso(0, blocking_wire=torch.bfloat16),
    ]
    for each in {1, layouts()[-1]}:
        with nodes_of(each):
            for make in made:
                whole, first = Training(make()).run(14), Training(make()).run(6)
                saved = first.state()
                first.run(8)  # saving changes nothing
                again = Training(make())
                for one, state in zip((again.model, again.optimizer, again.strategy), saved, strict=True):
                    one.load_state_dict(state)
                again.steps = 6
                again.run(8)
                for training in (first, again):
                    assert all(map(torch.equal, training.parameters, whole.parameters))
                for change in ({"strategy": "daso:global_skip=9"}, {"rank": 99}, {"world_size": 99}):
                    with pytest.raises(ValueError, match="this state is of another"):
                        again.strategy.load_state_dict({**saved[2], **change})


def check_momentum_is_merged_if_wanted() -> None:
    def buffers(training: Training) -> torch.Tensor:
        kept = [training.optimizer.state[one]["momentum_buffer"] for one in training.model.parameters()]
        return torch.cat([one.flatten() for one in kept])

    with nodes_of(1):
        apart, merged = (Training(daso(1, 1, merge_momentum=on)).run(2) for on in (False, True))
        spread = [hvd.allgather(buffers(one).unsqueeze(0)).std(0).sum() for one in (apart, merged)]
        assert 0 < spread[1] < 0.9 * spread[0]  # of momentum that differs in the second step again
        _close([hvd.allreduce(buffers(merged))], [hvd.allreduce(buffers(merged))])


def check_buffers_are_averaged_at_the_ends_of_epochs() -> None:
    for each in layouts():
        with nodes_of(each):
            norm = nn.BatchNorm1d(2)
            strategy = daso(2, buffers=norm.buffers)
            Training(strategy).run(2)
            with torch.no_grad():
                running = norm.running_mean
                assert running is not None
                running.fill_(float(hvd.rank()))
            strategy.epoch_ended(1.0)
            assert torch.equal(running, torch.full((2,), (hvd.size() - 1) / 2))


def check_uneven_data_ends_the_cycle() -> None:
    for each in layouts():
        for skips in ((4, 3), (2, 2), (0, 0)):
            with nodes_of(each):
                training = Training(daso(*skips))
                with hvd.join_context(training.optimizer):
                    training.run(5 + 2 * hvd.rank())
                assert training.equal_everywhere()
                last = 3 + 2 * hvd.size()
                assert training.strategy.state_dict()["step"] == last
                training.steps = last
                training.strategy.epoch_ended(1.0)
                assert training.run(7, ends=True).equal_everywhere()


def check_one_node_reduces_gradients_and_says_so() -> None:
    with nodes_of(hvd.size()), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        training = Training(daso(4)).run(5, ends=True)
        dense = Training("dense").run(5)
        assert all(map(torch.equal, training.parameters, dense.parameters))
        texts = [str(one.message) for one in said if "all ranks are on one node" in str(one.message)]
        assert len(texts) == (hvd.rank() == 0)


def check_passes_no_sync_and_clipping() -> None:
    """Gradients are summed over the passes; clipping is each node's own."""
    with nodes_of(1):
        training = Training(daso(2, 1), backward_passes_per_step=2)
        program = Program([[rank] for rank in range(hvd.size())], passes=2, clipped=0.01)
        for step in range(6):
            training.optimizer.zero_grad()
            loss_of(training.model, hvd.rank(), 2 * step).backward()
            with training.optimizer.no_sync():
                loss_of(training.model, hvd.rank(), 2 * step + 1).backward()
            nn.utils.clip_grad_norm_(training.model.parameters(), 0.01)
            training.optimizer.step()
        program.run_without_end(Epoch(2, 1, 1, 6))
        _close(training.parameters, program.parameters(hvd.rank()))


def check_an_overflow_on_one_rank_skips_the_step_on_all() -> None:
    with nodes_of(max(1, hvd.size() // 2)):
        training = Training(daso(3, 2, 2))
        scaler = torch.amp.GradScaler(torch.get_default_device().type, init_scale=4.0)
        for step in range(6):
            training.optimizer.zero_grad()
            loss = loss_of(training.model, hvd.rank(), step)
            infinite = step == 1 and hvd.rank() == hvd.size() - 1
            scaler.scale(loss * (float("inf") if infinite else 1.0)).backward()
            scaler.step(training.optimizer)
            scaler.update()
            assert training.strategy.state_dict()["step"] == step + (step < 1)
        assert scaler.get_scale() == 2.0
        training.strategy.average()
        assert training.equal_everywhere()
        assert all(one.isfinite().all() for one in training.parameters)


def check_half_parameters_have_masters_that_travel() -> None:
    with nodes_of(1):
        parameter = nn.Parameter(torch.ones(9, dtype=torch.bfloat16))
        strategy = daso(1, 0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([parameter], lr=1.0), strategy=strategy, master_weights=True
        )
        for _ in range(2):
            optimizer.zero_grad()
            (parameter * (hvd.rank() * 2.0**-9)).sum().backward()
            optimizer.step()
        (master,) = optimizer.param_groups[0]["params"]
        mean = 1 - 2 * 2.0**-9 * (hvd.size() - 1) / 2
        torch.testing.assert_close(master.detach(), torch.full((9,), mean))
        assert torch.equal(parameter, master.to(torch.bfloat16))


def check_ranks_that_differ_get_one_error() -> None:
    last = hvd.rank() == hvd.size() - 1
    for each in layouts():
        with nodes_of(each) as nodes:
            with pytest.raises(MismatchError, match=r"rank 0 has daso:global_skip=4.* rank .* global_skip=2"):
                Training(daso(2 if last else 4))
            training = Training(daso(2, 1)).run(2)
            behind = hvd.rank() in nodes[-1]  # its ranks have a batch less in the epoch
            with pytest.raises(MismatchError, match="after different steps: rank .* after step"):
                training.run(0 if behind else 1, ends=True)


def check_epochs_must_be_announced() -> None:
    with nodes_of(max(1, hvd.size() // 2)):
        training = Training(daso(2, batches_per_epoch=3)).run(3)
        assert training.equal_everywhere()
        with pytest.raises(RuntimeError, match=r"epoch 0 has ended after 3 batches: .*epoch_ended\(loss\)"):
            training.run(1)
        with pytest.raises(ValueError, match=r"not averaged the last 2 steps: call .*average\(\)"):
            hvd.DistributedOptimizer(Training(daso(2)).run(2).optimizer, strategy="dense")
        last = hvd.rank() == hvd.size() - 1
        with pytest.raises((ValueError, hvd.HorovodInternalError), match="needs the epoch's loss as a"):
            training.strategy.epoch_ended("low" if last else 1.0)  # type: ignore[arg-type]
        training.strategy.epoch_ended(torch.tensor(1.0))
        assert training.run(3, ends=True).equal_everywhere()


def check_two_optimizers_have_cycles_of_their_own() -> None:
    with nodes_of(max(1, hvd.size() // 2)):
        first, second = Training(daso(2, 2)), Training(daso(3, 1))
        for _ in range(7):
            first.run(1)
            second.run(1)
        for training in (first, second):
            training.strategy.average()
            assert training.equal_everywhere()


def check_users_may_have_sets_of_the_same_ranks() -> None:
    with nodes_of(max(1, hvd.size() // 2)) as nodes:
        training = Training(daso(2, 1)).run(3)
        sets = [hvd.add_process_set(ranks) for ranks in nodes if len(ranks) > 1]
        for one in sets:
            if one.included():
                total = hvd.allreduce(torch.ones(3), op=hvd.Sum, process_set=one)
                assert torch.equal(total, torch.full((3,), float(one.size())))
        training.run(3, ends=True)
        for one in sets:
            hvd.remove_process_set(one)
        assert training.run(3, ends=True).equal_everywhere()


def check_another_job_begins_with_wrapping_again() -> None:
    with nodes_of(max(1, hvd.size() // 2)):
        training = Training(daso(2)).run(3)
        hvd.shutdown()
        hvd.init()
        with pytest.raises(RuntimeError, match=r"after hvd\.init\(\), give the optimizer to"):
            training.run(1)
        hvd.broadcast_parameters(training.model.state_dict(), root_rank=0)
        hvd.DistributedOptimizer(training.optimizer, strategy=daso(2))
        assert training.run(3, ends=True).equal_everywhere()
