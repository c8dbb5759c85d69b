"""DASO on ranks that take themselves for several nodes, beside a sequential program of the same formulas."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from daso_training import Training, close, daso, layouts, nodes_of
from ranks import Check, run_check
from roundelay.errors import MismatchError
from roundelay.torch.strategies import DASO
from sequential_daso import Epoch, Program
from sequential_local_sgd import make_model

warnings.filterwarnings("ignore", "strategy daso.*all ranks are on one node", RuntimeWarning)

_SLOW, _NIGHTLY = pytest.mark.slow, pytest.mark.nightly
_RANKS = (4, pytest.param(2, marks=_SLOW), *(pytest.param(n, marks=_NIGHTLY) for n in (3, 6, 8)))


@pytest.mark.parametrize("np", _RANKS)
def test_daso(np: int, check: Check) -> None:
    run_check(check, np)


def _compare(program: Program, training: Training, epochs: Sequence[int], chance: random.Random) -> None:
    """Trains both for epochs of so many batches, and compares each rank's parameters at every end."""
    for batches in epochs:
        skips = training.strategy.skips
        program.run(Epoch(skips.global_skip, skips.batches_to_wait, skips.local_skip, batches))
        training.run(batches)
        training.strategy.epoch_ended(chance.choice((0.5, 1.0, 2.0)))
        close(training.parameters, program.parameters(hvd.rank()))
        assert training.equal_everywhere()


def check_random_schedules_are_the_sequential_program() -> None:
    for each in layouts():
        with nodes_of(each) as nodes:
            for seed in range(4):
                chance = random.Random(100 * each + seed)
                every = chance.randint(0, 5)
                wait, local = chance.randint(0, every), chance.randint(1, max(every, 1))
                blocking = {"warmup_epochs": chance.randint(0, 1), "cooldown_epochs": chance.randint(0, 1)}
                epochs = [chance.randint(1, 9) for _ in range(4)]
                known = epochs[0] if seed % 2 else None
                if known is not None:
                    epochs = [known] * len(epochs)
                strategy = daso(every, wait, local, **blocking, total_epochs=4, batches_per_epoch=known)
                _compare(Program(nodes, known is not None), Training(strategy), epochs, chance)


def check_parameters_within_an_epoch_are_those_of_the_program() -> None:
    """Also where a transfer begins in the batch in which the one before is merged."""
    for each in layouts():
        with nodes_of(each) as nodes:
            for every, wait in ((1, 1), (3, 3), (4, 1), (4, 3)):
                program, training = Program(nodes), Training(daso(every, wait))
                for batch in range(9):
                    program.batch(Epoch(every, wait, 1, 9), batch)
                    close(training.run(1).parameters, program.parameters(hvd.rank()))


def check_no_skips_are_plain_averages() -> None:
    for each in layouts():
        with nodes_of(each):
            averaged = Training("local_sgd:period=1").run(6).parameters
            training = Training(daso(0)).run(6)
            if hvd.is_homogeneous():  # nodes count alike for DASO
                close(training.parameters, averaged)
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
        """Returns the bytes of 16 steps and an average, after 8 in which the job measures its links."""
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), strategy=strategy)
        before = 0
        for step in range(25):
            if step in (8, 24) and isinstance(strategy, DASO):
                strategy.average()
            if step == 8:
                before = hvd.stats()["bytes"]
            if step < 24:
                optimizer.zero_grad()
                parameter.sum().backward()
                optimizer.step()
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
        close([hvd.allreduce(buffers(merged))], [hvd.allreduce(buffers(merged))])


def check_a_batch_and_an_average_are_a_dense_batch() -> None:
    """Each rank has the same weight, whatever its node's number of ranks."""
    for each in layouts():
        with nodes_of(each):
            weights = nn.Parameter(torch.ones(5).double())
            strategy = daso(4, 1)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weights], lr=0.1), strategy=strategy)
            (weights.sum() * (hvd.rank() + 1) ** 2).backward()
            optimizer.step()
            strategy.average()
            mean = sum((rank + 1) ** 2 for rank in range(hvd.size())) / hvd.size()
            close([weights.detach()], [(1 - 0.1 * mean) * torch.ones(5).double()])


def check_momentum_that_begins_under_way_stays_in_the_node() -> None:
    """The first gradient of a parameter comes after a transfer began, and before its merge."""

    def train(model: nn.ParameterList, optimizer: torch.optim.Optimizer, batches: Sequence[int]) -> None:
        for batch in batches:
            optimizer.zero_grad()
            used = list(model) if batch > 0 else [model[0]]
            ((hvd.rank() + 1) * torch.cat(used).sum()).backward()
            optimizer.step()

    def make() -> tuple[nn.ParameterList, torch.optim.Optimizer]:
        model = nn.ParameterList([torch.ones(3).double(), torch.ones(2).double()])
        plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        return model, hvd.DistributedOptimizer(plain, strategy=daso(4, 2, merge_momentum=True))

    for each in layouts():
        with nodes_of(each) as nodes:
            model, optimizer = make()
            train(model, optimizer, [0])
            assert list(optimizer.state) == [model[0]]
            train(model, optimizer, [1])
            resumed, other = make()
            strategies = hvd.strategies.of(optimizer), hvd.strategies.of(other)
            for new, old in ((resumed, model), (other, optimizer), (strategies[1], strategies[0])):
                new.load_state_dict(copy.deepcopy(old.state_dict()))
            gradients = [torch.tensor(ranks).double().mean() + 1 for ranks in nodes]
            (own,) = (one for one, ranks in zip(gradients, nodes, strict=True) if hvd.rank() in ranks)
            weight = 4 / (4 + len(nodes))  # of what the node has at the merge, after batch 2
            weights = [len(ranks) * len(nodes) / hvd.size() for ranks in nodes]
            sent = sum(w * one for w, one in zip(weights, gradients, strict=True))
            started = weight * 1.75 * own + sent / (4 + len(nodes))
            for parameters, stepped in ((model, optimizer), (resumed, other)):
                train(parameters, stepped, [2])
                early, late = parameters
                momenta = [stepped.state[one]["momentum_buffer"] for one in (early, late)]
                close(momenta, [started.expand(3), (1.5 * own).expand(2)])
                close([late.detach()], [(1 - weight * 0.1 * 2.5 * own).expand(2)])


def check_momentum_that_only_some_nodes_have_is_an_error() -> None:
    with nodes_of(1):
        first, second = (nn.Parameter(torch.ones(4)) for _ in range(2))
        plain = torch.optim.SGD([first, second], lr=0.1, momentum=0.5)
        optimizer = hvd.DistributedOptimizer(plain, strategy=daso(2, 1, merge_momentum=True))

        def train() -> None:
            for _ in range(2):
                optimizer.zero_grad()
                (first if hvd.rank() else first + second).sum().backward()
                optimizer.step()

        with pytest.raises(MismatchError, match="parameters.transfer"):
            train()


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
