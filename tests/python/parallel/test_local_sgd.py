"""Local SGD on several ranks and nodes, beside a sequential program of the same formulas in fp64."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay.errors import MismatchError
from roundelay.torch._internal.optimizer.gradient_sync import GradientSync
from roundelay.torch.strategies import LocalSGD
from sequential_local_sgd import Settings, loss_of, make_model, momentum, nesterov, train
from some_ranks import all_but_the_last, process_set_of

warnings.filterwarnings("ignore", "strategy local_sgd.*all ranks are on one node", RuntimeWarning)


@pytest.mark.parametrize("np", [2, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 3, 4))])
def test_local_sgd(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.parametrize("each", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_local_sgd_on_two_nodes(each: int, check: Check) -> None:
    """Two ranks on each of two nodes; or three on one and one on the other."""
    node = f"ROUNDELAY_NODE_ID=$((RANK / {each})) LOCAL_RANK=$((RANK % {each}))"
    run_check(check, 4, each=node, mpi=False)


def _nodes() -> list[list[int]]:
    """The ranks of each node: the launches above fill one node after the other."""
    each = max(hvd.allgather_object(hvd.local_size()))
    every = list(range(hvd.size()))
    return [every[begin : begin + each] for begin in range(0, hvd.size(), each)]


class Training:
    """A model that a strategy trains."""

    def __init__(self, strategy: Any, make: Any = momentum, frozen: int = 0, **arguments: Any) -> None:
        self.model = make_model()
        for parameter in list(self.model.parameters())[:frozen]:
            parameter.requires_grad_(False)
        plain = make(list(self.model.parameters()))
        self.optimizer: Any = hvd.DistributedOptimizer(
            plain, self.model.named_parameters(), strategy=strategy, **arguments
        )
        self.steps = 0

    @property
    def strategy(self) -> LocalSGD:
        strategy = hvd.strategies.of(self.optimizer)
        assert isinstance(strategy, LocalSGD)
        return strategy

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [one.detach() for one in self.model.parameters()]

    def run(self, steps: int) -> Training:
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss_of(self.model, hvd.rank(), self.steps).backward()
            self.optimizer.step()
            self.steps += 1
        return self

    def equal_everywhere(self) -> bool:
        flat = torch.cat([one.flatten() for one in self.parameters])
        same = all(torch.equal(one, flat) for one in hvd.allgather(flat.unsqueeze(0)))
        return bool(hvd.allreduce(torch.tensor([int(same)]), op=hvd.Min))


def _same(these: Sequence[torch.Tensor], those: Sequence[torch.Tensor]) -> bool:
    return all(map(torch.equal, these, those))


def _close(these: Sequence[torch.Tensor], those: Sequence[torch.Tensor]) -> None:
    for one, other in zip(these, those, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)


def _compare(strategy: LocalSGD, settings: Settings, steps: int = 13) -> None:
    expected = hvd.broadcast_object(train(hvd.size(), steps, settings) if hvd.rank() == 0 else None)
    _close(Training(strategy).run(steps).parameters, expected[hvd.rank()])


@needs_ranks(2)
def check_every_form_is_the_sequential_program() -> None:
    alone = [[rank] for rank in range(hvd.size())]
    for within_node, groups in (("every_step", _nodes()), ("period", alone)):
        _compare(LocalSGD(4, 0, None, within_node), Settings((4, 8, 12), groups))
        _compare(LocalSGD(3, 5, nesterov, within_node), Settings((8, 11), groups, 5, nesterov))
        schedule = [(0, 1), (2, 2), (6, 5)]
        _compare(LocalSGD(schedule, within_node=within_node), Settings((1, 2, 4, 6, 11), groups))
    function = LocalSGD(lambda step: 1 if step < 2 else 5, 0, nesterov, "period")
    _compare(function, Settings((1, 2, 7, 12), alone, 0, nesterov))


def check_period_one_of_plain_sgd_is_synchronous() -> None:
    def plain(tensors: list[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(tensors, lr=0.1)

    dense = Training("dense", plain).run(8).parameters
    for within_node in ("every_step", "period"):
        training = Training(f"local_sgd:period=1,within_node={within_node}", plain).run(8)
        _close(training.parameters, dense)
        assert training.equal_everywhere()


def check_ranks_are_equal_after_an_average_and_only_then() -> None:
    training = Training(LocalSGD(4, within_node="period"))
    for step in range(1, 10):
        training.run(1)
        assert training.equal_everywhere() == (step % 4 == 0 or hvd.size() == 1)
    training.strategy.average()
    assert training.equal_everywhere()
    before = training.parameters
    training.strategy.average()  # there is nothing to do
    assert _same(training.parameters, before)
    if hvd.size() > 1:
        training.run(3)
        with pytest.raises(ValueError, match=r"not averaged the last 3 steps: call .*average\(\)"):
            hvd.DistributedOptimizer(training.optimizer, strategy="dense")
        training.run(1)
        hvd.DistributedOptimizer(training.optimizer, strategy="dense")
        hvd.broadcast_optimizer_state(training.optimizer, root_rank=0)  # momentum is each rank's own
        assert training.run(2).equal_everywhere()


@needs_ranks(2)
def check_bytes_are_those_of_dense_by_the_period() -> None:
    parameter = nn.Parameter(torch.zeros(100_000))

    def sent(strategy: str) -> int:
        """Returns the bytes of 16 steps, after 8 in which the job measures its links."""
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), strategy=strategy)
        before = 0
        for step in range(24):
            if step == 8:
                before = hvd.stats()["bytes"]
            optimizer.zero_grad()
            parameter.sum().backward()
            optimizer.step()
        return hvd.stats()["bytes"] - before

    dense = sent("dense")
    assert abs(dense / (16 * 400_000) - 1) < 0.02
    assert abs(sent("local_sgd:period=8,within_node=period") / (dense / 8) - 1) < 0.02
    in_node = dense if hvd.local_size() > 1 else 0  # the ranks of a node reduce their gradients
    assert abs((sent("local_sgd:period=8") - in_node) / (dense / 8) - 1) < 0.02


def check_a_resumed_run_has_the_bits_of_the_uninterrupted_one() -> None:
    for strategy in (
        lambda: LocalSGD(5, 3, nesterov),
        lambda: LocalSGD(5, 0, nesterov, "period"),
        lambda: LocalSGD(4),
    ):
        whole, first = Training(strategy()).run(14), Training(strategy()).run(7)
        saved = [one.state_dict() for one in (first.model, first.optimizer, first.strategy)]
        again = Training(strategy())
        for one, state in zip((again.model, again.optimizer, again.strategy), saved, strict=True):
            one.load_state_dict(state)
        again.steps = 7
        assert _same(again.run(7).parameters, whole.parameters)
        for change in ({"strategy": "local_sgd:period=9"}, {"rank": 99}, {"world_size": 99}, {"format": 0}):
            with pytest.raises(ValueError, match="this (is no )?state"):
                again.strategy.load_state_dict({**saved[2], **change})


@needs_ranks(2)
def check_a_run_resumes_after_a_parameter_was_unfrozen() -> None:

    def unfrozen_at_6(steps: int) -> Training:
        training = Training(LocalSGD(4, 0, nesterov, "period"), frozen=1)
        training.run(6)
        next(iter(training.model.parameters())).requires_grad_(True)
        return training.run(steps - 6)

    whole, first = unfrozen_at_6(14), unfrozen_at_6(7)
    saved = [one.state_dict() for one in (first.model, first.optimizer, first.strategy)]
    again = Training(LocalSGD(4, 0, nesterov, "period"))
    for one, state in zip((again.model, again.optimizer, again.strategy), saved, strict=True):
        one.load_state_dict(state)
    again.steps = 7
    assert _same(again.run(7).parameters, whole.parameters)


@needs_ranks(2)
def check_uneven_data_ends_with_the_average_of_the_longest() -> None:
    for within_node in ("every_step", "period"):
        for local_after in (0, 8):  # the first ranks join while gradients are still those of all
            training = Training(LocalSGD(4, local_after, nesterov, within_node))
            with hvd.join_context(training.optimizer):
                training.run(6 + 3 * hvd.rank())
            last = 3 + 3 * hvd.size()
            assert training.strategy.state_dict()["step"] == last
            assert training.equal_everywhere()
            training.steps = last
            assert training.run(4).equal_everywhere()  # a cycle has begun at the join


@needs_ranks(2)
def check_passes_clipping_and_no_sync() -> None:
    """Gradients are summed over the passes; clipping is each node's or rank's own."""
    training = Training(LocalSGD(2, within_node="period"), backward_passes_per_step=2)
    twin = make_model()
    optimizer = momentum(list(twin.parameters()))
    both: list[tuple[nn.Module, Any]] = [(training.model, training.optimizer), (twin, optimizer)]
    for step in range(4):
        for model, stepped in both:
            stepped.zero_grad()
            loss_of(model, hvd.rank(), 2 * step).backward()
            if stepped is optimizer:
                loss_of(model, hvd.rank(), 2 * step + 1).backward()
            else:
                with stepped.no_sync():
                    loss_of(model, hvd.rank(), 2 * step + 1).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            stepped.step()
        if step % 2:
            for parameter in twin.parameters():
                hvd.allreduce_(parameter.data)
    _close(training.parameters, [one.detach() for one in twin.parameters()])


def check_an_overflow_on_one_rank_skips_the_step_on_all() -> None:
    device = torch.get_default_device().type
    training = Training(LocalSGD(3, within_node="period"))
    scaler = torch.amp.GradScaler(device, init_scale=4.0)
    for step in range(6):
        training.optimizer.zero_grad()
        loss = loss_of(training.model, hvd.rank(), step)
        infinite = step == 2 and hvd.rank() == hvd.size() - 1
        scaler.scale(loss * (float("inf") if infinite else 1.0)).backward()
        scaler.step(training.optimizer)
        scaler.update()
        if hvd.size() > 1:
            assert training.strategy.state_dict()["step"] == step + (step < 2)
    assert scaler.get_scale() == 2.0
    assert all(one.isfinite().all() for one in training.parameters)


@needs_ranks(2)
def check_half_parameters_have_masters_that_are_averaged() -> None:
    parameter = nn.Parameter(torch.ones(9, dtype=torch.bfloat16))
    plain = torch.optim.SGD([parameter], lr=1.0)
    optimizer = hvd.DistributedOptimizer(
        plain, strategy=LocalSGD(2, within_node="period"), master_weights=True
    )
    for _ in range(2):
        optimizer.zero_grad()
        (parameter * (hvd.rank() * 2.0**-9)).sum().backward()
        optimizer.step()
    (master,) = optimizer.param_groups[0]["params"]
    mean = 1 - 2 * 2.0**-9 * (hvd.size() - 1) / 2
    torch.testing.assert_close(master.detach(), torch.full((9,), mean))
    assert torch.equal(parameter, master.to(torch.bfloat16))


@needs_ranks(2)  # alone masters take the user's change in the next step
def check_an_average_between_two_steps_changes_the_half_parameters() -> None:
    parameter = nn.Parameter(torch.ones(9, dtype=torch.bfloat16))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter], lr=1.0),
        strategy=LocalSGD(8, within_node="period"),
        master_weights=True,
    )
    (parameter * float(hvd.rank())).sum().backward()
    optimizer.step()
    with torch.no_grad():
        parameter.add_(4.0)  # the average is of the parameters as the user left them
    strategy = hvd.strategies.of(optimizer)
    assert isinstance(strategy, LocalSGD)
    strategy.average()
    mean = 5 - (hvd.size() - 1) / 2
    assert torch.equal(parameter.detach(), torch.full((9,), mean, dtype=torch.bfloat16))
    (master,) = optimizer.param_groups[0]["params"]
    assert torch.equal(master.detach(), torch.full((9,), mean))


@needs_ranks(2)
def check_the_pool_of_the_synchronous_steps_dies() -> None:
    training = Training(LocalSGD(3, post_local_after=4, within_node="period"))

    def pools() -> int:
        gc.collect()
        return sum(type(one) is GradientSync for one in gc.get_objects())

    before = pools()
    training.run(6)
    assert pools() == before - 1


def check_an_outer_optimizer_that_wants_gradients() -> None:
    class Strict(torch.optim.SGD):
        def __init__(self, tensors: list[torch.Tensor]) -> None:
            assert all(one.requires_grad and one.is_leaf for one in tensors)
            super().__init__(tensors, lr=1.0)

    assert Training(LocalSGD(2, outer=Strict)).run(4).equal_everywhere()


@needs_ranks(2)
def check_ranks_that_differ_get_one_error() -> None:
    last = hvd.rank() == hvd.size() - 1
    with pytest.raises(MismatchError, match="rank 0 has local_sgd:period=3,.* rank .* local_sgd:period=4,"):
        Training("local_sgd:period=4" if last else "local_sgd:period=3")
    rate = 0.5 if last else 0.7
    with pytest.raises(MismatchError, match=r"lr=0\.7.*lr=0\.5"):
        Training(LocalSGD(3, outer=lambda tensors: torch.optim.SGD(tensors, lr=rate)))
    with pytest.raises(MismatchError, match="the first average after 2 steps, .* first average after 3"):
        Training(LocalSGD(lambda step: 3 if last else 2, within_node="period"))
    training = Training(LocalSGD(lambda step: 2 if step < 2 or not last else 3, within_node="period"))
    training.run(1)
    with pytest.raises(MismatchError, match="rank 0 after step 2, and wants the next one 2 steps later"):
        training.run(1)
    assert Training("local_sgd:period=2").run(4).equal_everywhere()


def check_what_cannot_be_is_refused() -> None:
    training = Training("local_sgd:period=2")
    for strategy in ("dense", "local_sgd:period=3"):
        with pytest.raises(ValueError, match=r"parameter '0\.weight' belongs to two optimizers"):
            hvd.DistributedOptimizer(
                momentum(list(training.model.parameters())),
                training.model.named_parameters(),
                strategy=strategy,
            )
    with pytest.raises(ValueError, match=r"needs op=hvd\.Average"):
        Training("local_sgd", op=hvd.Sum)
    if hvd.size() < 3:
        return
    with process_set_of(all_but_the_last()) as some:
        with pytest.raises(ValueError, match="within_node='period'"):
            Training("local_sgd", process_set=some)
        part = Training("local_sgd:period=2,within_node=period", process_set=some)
        part.run(4)
        if some.included():
            flat = torch.cat([one.flatten() for one in part.parameters])
            assert torch.equal(hvd.broadcast(flat, 0, process_set=some), flat)
        del part


def check_two_optimizers_have_cycles_of_their_own() -> None:
    first, second = Training("local_sgd:period=2"), Training("local_sgd:period=3,within_node=period")
    for _ in range(6):
        first.run(1)
        second.run(1)
    assert first.equal_everywhere()
    assert second.equal_everywhere()


@needs_ranks(2)
def check_another_job_begins_with_wrapping_again() -> None:
    training = Training("local_sgd:period=2,post_local_after=1")
    training.run(3)
    hvd.shutdown()
    hvd.init()
    with pytest.raises(
        RuntimeError, match=r"after hvd\.init\(\), give the optimizer to DistributedOptimizer"
    ):
        training.run(1)
    hvd.broadcast_parameters(training.model.state_dict(), root_rank=0)
    hvd.DistributedOptimizer(training.optimizer, strategy="local_sgd:period=2")
    assert training.run(2).equal_everywhere()
