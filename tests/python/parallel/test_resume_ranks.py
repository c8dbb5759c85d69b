"""States that only some ranks have loaded, and what happens between loading and the first step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from ranks import Check, run_check
from resumed_training import CSC, ENV, POWER_SGD, TOPK, Training, same
from roundelay.errors import MismatchError
from roundelay.torch._internal.optimizer import gradient_sync


@pytest.mark.parametrize("np", [2, 4])
def test_resume_on_some_ranks(np: int, check: Check) -> None:
    run_check(check, np, env=ENV)


def _differ(training: Training) -> None:
    with pytest.raises(MismatchError, match="do not belong together") as raised:
        training.step()
    assert "load the state of one checkpoint on every rank" in str(raised.value)


def _go_on(training: Training) -> None:
    """Trains with what rank 0 has, from no pool to buckets that keep something back."""
    hvd.broadcast_parameters(training.model.state_dict(), 0)
    hvd.broadcast_optimizer_state(training.optimizer, 0)
    training.steps = 0
    training.run(5)
    assert training.buckets() > 1
    training.check_has_kept()
    for tensor in training.model.state_dict().values():
        assert torch.equal(hvd.allreduce(tensor, op=hvd.Max), tensor)


def check_ranks_that_loaded_nothing_or_another_state() -> None:
    last = hvd.size() - 1
    pairs = ((None, 8), (8, None), (None, 1), (2, 8), (7, 8), (1, 2))
    for strategy in (CSC, f"{CSC},momentum=local", TOPK, POWER_SGD, "dense", "auto:candidates=dense+bf16"):
        whole = Training(strategy)
        states = {until: whole.run(until).saved() for until in (1, 2, 7, 8)}
        for some, others in pairs if strategy == CSC else pairs[:1]:
            chosen = some if hvd.rank() == last else others
            training = Training(strategy)
            if chosen is not None:
                training.load(states[chosen])
            _differ(training)
            _go_on(training)


def check_the_last_difference_is_found_without_a_backward() -> None:
    """One rank has no gradients in the first step."""
    state = Training(CSC).run(8).saved()
    training = Training(CSC)
    if hvd.rank() == 0:
        training.load(state)
        _differ(training)
    else:
        with pytest.raises(MismatchError, match="do not belong together"):
            training.optimizer.step()
    _go_on(training)


def check_a_rank_without_memory() -> None:
    state = Training(CSC).run(8).saved()
    training = Training(CSC)
    if hvd.rank() == 1:
        with _no_pools(), pytest.raises(RuntimeError, match="cannot be made on this rank: no room"):
            training.load(state)
        assert training.buckets() == 0
    else:
        training.load(state)
    _differ(training)
    _go_on(training)


@contextmanager
def _no_pools() -> Iterator[None]:
    def none(*_: Any) -> None:
        raise RuntimeError("no room")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradient_sync, "Pools", none)
        yield


def check_a_state_that_is_loaded_twice() -> None:
    whole = Training(CSC)
    early, late = whole.run(5).saved(), whole.run(8).saved()
    end = whole.run().saved()
    again = Training(CSC).load(early)
    wrong = {**late["strategy"], "world_size": 99}
    with pytest.raises(ValueError, match="another world size"):
        again.strategy.load_state_dict(wrong)
    same(again.saved(), early)
    if hvd.rank() == 0:  # the others load once: no key of a pool is used up
        again.load(late).load(early)
    same(again.load(late).run().saved(), end)


def check_a_state_without_buckets_does_not_replace_one_with_some() -> None:
    whole = Training(CSC)
    states = [whole.run(until).saved() for until in (1, 2, 8)]
    for early in states[:2]:
        again = Training(CSC).load(states[2])
        with pytest.raises(ValueError, match="cannot be made on this rank: it has none"):
            again.strategy.load_state_dict(early["strategy"])
        assert again.buckets() == 0
        same(Training(CSC).load(early).load(states[2]).saved(), states[2])
        again.load(early)
        same(again.run(8).saved(), states[2])


def check_a_state_is_loaded_between_two_steps() -> None:
    whole = Training(CSC)
    state = whole.run(8).saved()
    again = Training(CSC)
    again.model(torch.ones(1, 12)).sum().backward()
    with pytest.raises(ValueError, match="load a state between two steps"):
        again.strategy.load_state_dict(state["strategy"])
    again.optimizer.zero_grad()
    same(again.load(state).run().saved(), whole.run().saved())


def check_groups_that_are_not_those_of_the_state() -> None:
    state = Training(CSC).run(8).saved()
    again = Training(CSC)
    hvd.DistributedOptimizer(again.optimizer, again.model.named_parameters(), groups=2, strategy=CSC)
    strategy = hvd.strategies.of(again.optimizer)
    with pytest.raises(ValueError, match=r"cannot be made on this rank: no bucket can have .* groups="):
        strategy.load_state_dict(state["strategy"])
    again.run(5)
    assert again.buckets() == 0


def check_parameters_that_are_frozen_or_added_after_loading() -> None:
    whole = Training(CSC).run(8)
    state = whole.saved()
    again = Training(CSC).load(state)
    for training in (whole, again):
        training.model[0].weight.requires_grad_(False)
        training.run(10)
        training.model[0].weight.requires_grad_()
        more = nn.Parameter(torch.ones(5))
        training.optimizer.add_param_group({"params": [more]})
        for _ in range(4):
            training.optimizer.zero_grad()
            (more * (1 + hvd.rank())).sum().backward()
            training.optimizer.step()
        training.run(12)
    same(again.saved(), whole.saved())


def check_two_optimizers_and_a_process_set() -> None:
    whole_job = hvd.size() == 2
    some = hvd.global_process_set if whole_job else hvd.add_process_set([0, hvd.size() - 1])

    def made() -> list[Training]:
        own = [Training(POWER_SGD, process_set=some)] if some.included() else []
        return [Training(CSC), Training(TOPK), *own]

    runs = made()
    for training in runs:
        training.run(8)
    states = [training.saved() for training in runs]
    again = made()
    for training, state in zip(reversed(again), reversed(states), strict=True):  # in another order than made
        training.load(state)
    for training, whole in zip(again, runs, strict=True):
        same(training.run().saved(), whole.run().saved())
        training.check_has_kept()
    del runs, again, training, whole
    if not whole_job:
        hvd.remove_process_set(some)


def check_a_new_job_forgets_a_loaded_state() -> None:
    state = Training(CSC).run(8).saved()
    training = Training(CSC).load(state)
    hvd.shutdown()
    hvd.init()
    assert training.buckets() == 0
    _go_on(training)
