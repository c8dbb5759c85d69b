"""What techniques keep back, by parameter: it is all there, in the units of a rank's part of the sum.

An elastic commit has it in this form. Gradients are small whole numbers, so that sums are exact.
"""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch

import roundelay.torch as hvd
from exact_training import Training, until_buckets
from ranks import Check, one_and_more, run_check, two_by_two
from roundelay.torch._internal.nodes import Levels

THETA = {"ROUNDELAY_THETA": "512"}  # several buckets
SIZES = (70, (20, 15), 5, (16, 8), 64, 33)
TOPK = "topk:density=0.05,momentum=none,dense_below=6,wire=bf16"
LOCAL = "csc:keep=0.2,chunk_elements=8,dense_below=0,momentum=local"
STRATEGIES = (
    TOPK,
    "topk:density=0.05,dense_below=6",
    "csc:keep=0.2,chunk_elements=8,dense_below=6",
    LOCAL,
    "power_sgd:rank=1,dense_below=6",
)


def strategies() -> tuple[str, ...]:
    """Those that keep something back here: quantised does between nodes."""
    several = Levels.of(hvd.global_process_set).nodes > 1
    return (*STRATEGIES, "quantised:bits=8") if several else STRATEGIES


@pytest.mark.parametrize("np", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_residuals(np: int, check: Check) -> None:
    run_check(check, np, env=THETA)


@pytest.mark.slow
def test_residuals_on_two_nodes(check: Check) -> None:
    run_check(check, 4, env=THETA, each=two_by_two(), mpi=False)


@pytest.mark.nightly
def test_residuals_on_uneven_nodes(check: Check) -> None:
    run_check(check, 4, env=THETA, each=one_and_more(), mpi=False)


def kept(training: Training) -> list[torch.Tensor]:
    """All ranks' residuals of each parameter, added up."""
    parts = training.strategy.context.keeper().residuals.kept()
    found = []
    for index, parameter in enumerate(training.parameters):
        whole = torch.zeros(parameter.numel())
        first, values = next((part for name, part in parts.items() if name.endswith(f".{index}")), (0, whole))
        whole[first : first + len(values)] = values
        found.append(hvd.allreduce(whole, op=hvd.Sum).view_as(parameter))
    return found


def nothing_is_lost(training: Training, op: int, more: list[torch.Tensor] | None = None) -> None:
    """What was applied and what is kept make what the ranks have given, and more."""
    ranks = hvd.size() if op == hvd.Average else 1
    more = more or [torch.zeros_like(one) for one in training.given]
    for parameter, given, left, others in zip(
        training.parameters, training.given, kept(training), more, strict=True
    ):
        came, want = left - ranks * parameter.detach(), hvd.allreduce(given, op=hvd.Sum) + others
        same(training.strategy.text, came, want)


def same(strategy: str, tensor: torch.Tensor, other: torch.Tensor) -> None:
    """All but low-rank factors are exact."""
    torch.testing.assert_close(
        tensor, other, rtol=0, atol=1e-2 if strategy.startswith(("power_sgd", "quantised")) else 0
    )


def check_what_is_kept_and_applied_is_what_came() -> None:
    cases = [(strategy, hvd.Sum, 1.0) for strategy in strategies()]
    cases += [(strategy, hvd.Average, 4.0) for strategy in strategies()]
    for strategy, op, predivide in [*cases, (TOPK, hvd.Average, 1.0)]:
        training = until_buckets(Training(strategy, SIZES, op=op, predivide=predivide))
        for _ in range(3):
            training.step()
            nothing_is_lost(training, op)
        assert any(one.any() for one in kept(training)), strategy


def check_a_flush_without_some_gradients_says_that_it_left_something() -> None:
    for strategy in strategies():
        training = until_buckets(Training(strategy, SIZES))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            training.strategy.flush()
            training.step(among=[0])
            left = training.techniques.table.keeps_something()
            assert any(hvd.allgather_object(left)), strategy
            said = [str(one.message) for one in caught if "was to send all" in str(one.message)]
            assert len(said) == int(left), strategy
        training.flush()
        assert not training.techniques.table.keeps_something()
        nothing_is_lost(training, hvd.Sum)


def check_a_commit_is_by_value() -> None:
    for strategy in strategies():
        training = until_buckets(Training(strategy, SIZES))
        training.step()
        state = hvd.elastic.TorchState(optimizer=training.optimizer)
        given, weights = training.given, [one.detach().clone() for one in training.parameters]
        before = kept(training)
        for _ in range(2):  # restoring must not spend what was saved
            training.given = [one.clone() for one in given]
            training.step()
            training.step()
            state.restore()
            for parameter, weight in zip(training.parameters, weights, strict=True):
                parameter.data.copy_(weight)
            for now, then in zip(kept(training), before, strict=True):
                assert torch.equal(now, then), strategy
        training.given = given
        for _ in range(3):
            training.step()
            nothing_is_lost(training, hvd.Sum)
        training.check_ranks_agree()


def waiting() -> Training:
    """Returns one whose residuals wait for the next step."""
    training = until_buckets(Training(TOPK, SIZES))
    training.step()
    training.strategy.leave_generation()
    return training


def renewed(strategy: str, momentum: float = 0.0) -> tuple[Training, list[torch.Tensor]]:
    """Returns one without buckets whose residuals wait, as in a new generation, and their sums."""
    before = until_buckets(Training(strategy, SIZES, momentum=momentum))
    parts, left = before.strategy.context.keeper().residuals.kept(), kept(before)
    training = Training(strategy, SIZES, momentum=momentum)
    training.strategy.context.keeper().residuals.put(parts)
    training.optimizer.zero_grad()
    return training, left


def clear(training: Training) -> None:
    """Does what zero_grad() of a model does."""
    for parameter in training.parameters:
        parameter.grad = None


def check_gradients_that_are_thrown_away_spend_nothing() -> None:
    """The third backward makes buckets."""
    for number, by_optimizer in itertools.product((1, 2, 3, 4), (True, False)):
        training, left = renewed(TOPK)
        for _ in range(number):
            training.backward()
            training.optimizer.zero_grad() if by_optimizer else clear(training)
        training.given = [torch.zeros_like(one) for one in training.given]
        training.backward()
        training.optimizer.step()
        nothing_is_lost(training, hvd.Sum, left)


def check_two_losses_and_grad_of_autograd() -> None:
    training, left = renewed(TOPK)
    loss = torch.stack([one.sum() for one in training.parameters]).sum()
    for gradient in torch.autograd.grad(loss, training.parameters):
        assert torch.equal(gradient, torch.ones_like(gradient))
    training.backward()
    training.backward()
    training.optimizer.step()
    nothing_is_lost(training, hvd.Sum, left)


def check_a_restore_between_backward_and_step() -> None:
    training = until_buckets(Training(TOPK, SIZES))
    state = hvd.elastic.TorchState(optimizer=training.optimizer)
    before = kept(training)
    for _ in range(2):
        state.restore()
        training.optimizer.zero_grad()
        training.backward()
    state.restore()
    for now, then in zip(kept(training), before, strict=True):
        assert torch.equal(now, then)


def check_the_first_step_sends_all_that_was_kept_back() -> None:
    """The optimizer has no buckets yet, as in a new generation. No step takes the first gradients."""
    for strategy in strategies():
        training, left = renewed(strategy)
        training.backward()
        training.given = [torch.zeros_like(one) for one in training.given]
        training.step()
        assert not any(one.any() for one in kept(training))
        for parameter, given, one in zip(training.parameters, training.given, left, strict=True):
            same(strategy, -parameter.detach(), hvd.allreduce(given, op=hvd.Sum) + one)


def check_local_momentum_is_not_applied_twice() -> None:
    """What a rank has kept back has its momentum already: SGD may not give it another one."""
    training, left = renewed(LOCAL, momentum=0.5)
    for _ in range(2):  # the second step has no momentum of the first one
        training.step()
        nothing_is_lost(training, hvd.Sum, left)


def check_nor_to_what_comes_later() -> None:
    """A layer has no gradient until there are buckets. Gradients are zero: weights move by what was kept."""
    training, left = renewed(LOCAL, momentum=0.5)
    for step in range(60):
        training.optimizer.zero_grad()
        used = training.parameters[1:] if step < 5 else training.parameters
        torch.stack([(0 * one).sum() for one in used]).sum().backward()
        training.optimizer.step()
        if step == 50:
            training.strategy.flush()
    for parameter, one in zip(training.parameters, left, strict=True):
        torch.testing.assert_close(-parameter.detach(), one)


def check_a_parameter_without_a_gradient_waits_for_one() -> None:
    training = waiting()
    before = kept(training)[1]
    assert before.any()
    training.step([0, 2, 3, 4, 5])
    assert torch.equal(kept(training)[1], before)
    nothing_is_lost(training, hvd.Sum)
    training.step()
    nothing_is_lost(training, hvd.Sum)


def check_the_scale_of_the_loss_changes_what_waits() -> None:
    training = waiting()
    before = kept(training)
    training.strategy.rescale(0.5)
    for now, then in zip(kept(training), before, strict=True):
        assert torch.equal(now, then / 2)
