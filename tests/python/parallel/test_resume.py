"""A run from a checkpoint has the bits of one without a break: k + (n - k) steps are n steps."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from own_strategies import Choosing
from ranks import Check, needs_ranks, run_check
from resumed_training import CSC, ENV, POWER_SGD, RUNS, STEPS, Training, adamw, same
from roundelay.torch._internal.tuning import pool_tuner
from roundelay.tuning.buckets import Cuts
from technique_libraries import CYCLIC, NEGATE


@pytest.mark.parametrize("np", [1, 2, 4])
def test_resume(np: int, check: Check) -> None:
    run_check(check, np, env=ENV)


def check_eight_and_eight_steps_are_sixteen() -> None:
    for strategy, settings in RUNS:
        training = Training(strategy, **settings).run(8)
        state = training.saved()
        again = Training(strategy, **settings).load(state)
        assert again.buckets() == training.buckets()
        same(again.saved(), state, strategy)
        same(again.run().saved(), training.run().saved(), f"{strategy} {settings}")
        if hvd.size() > 1:
            assert again.buckets() > 1
            again.check_has_kept()


def _outer(tensors: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(tensors, lr=0.7, momentum=0.9, nesterov=True)


def check_strategies_that_average_parameters() -> None:
    """Ranks have steps of their own. The state is saved between two averages."""

    def with_outer() -> hvd.strategies.Strategy:
        return hvd.strategies.LocalSGD(period=3, outer=_outer, within_node="period")

    runs: list[tuple[Any, dict[str, Any]]] = [
        (with_outer, {"cycle": True}),
        ("local_sgd:period=3,within_node=period,post_local_after=5", {"make": adamw, "scale": True}),
        ("local_sgd:period=3,within_node=period", {"dtype": torch.bfloat16, "passes": 2}),
        ("adasum", {"make": adamw, "clip": True}),
    ]
    for strategy, settings in runs:
        training = Training(strategy, **settings).run(8)
        state = training.saved()
        again = Training(strategy, **settings).load(state)
        same(again.saved(), state)
        same(again.run().saved(), training.run().saved(), f"{training.strategy.text} {settings}")


def check_a_state_of_any_step() -> None:
    """The pool comes into use in the same step, also where the state was saved before it was."""
    for strategy in (CSC, POWER_SGD, "dense"):
        whole = Training(strategy)
        states = [whole.saved()]
        for until in range(1, 7):
            states.append(whole.run(until).saved())
        end = whole.run(10).saved()
        for state in states:
            again = Training(strategy).load(state)
            same(again.saved(), state, f"step {state['steps']}")
            same(again.run(10).saved(), end, f"{strategy}, {state['steps']}")


def _changing() -> Choosing:
    texts = (f"{CYCLIC}:parts=3", "csc:keep=0.3,chunk=4", NEGATE, f"{CYCLIC}:parts=2")
    return Choosing(lambda bucket, step: texts[(bucket.index + step // 4) % 4])


@needs_ranks(2)
def check_a_state_of_any_step_of_a_flush() -> None:
    """Techniques change, and buckets are flushed first; the user flushes, too."""
    whole = Training(_changing)
    states = []
    for until in range(1, STEPS):
        whole.run(until)
        if until == 6:
            whole.strategy.flush()
        states.append(whole.saved())
    end = whole.run().saved()
    flushing = [state["strategy"]["flushing"] for state in states]
    assert any(one[0] for one in flushing)
    assert any(one[1] for one in flushing)
    for state in states:
        again = Training(_changing).load(state)
        same(again.saved(), state, f"step {state['steps']}")
        if state["steps"] < 6:
            again.run(6).strategy.flush()
        same(again.run().saved(), end, f"step {state['steps']}")


@needs_ranks(2)
def check_a_state_of_any_step_of_a_new_layout() -> None:
    """Rank 0 has proposed other sizes, or another order, and the ranks flush before they take them."""
    for counter in ("pool_cuts", "pool_orders"):
        whole = Training(CSC).run(5)
        plan = whole.plan()
        if plan._pool_tuner is not None and plan._layout.pools is not None and counter == "pool_cuts":
            plan._pool_tuner.cuts = Cuts(512)
        elif plan._pool_tuner is not None and plan._layout.pools is not None:
            order = plan._layout.pools.gradients()
            random.Random(3).shuffle(order)
            plan._pool_tuner.order = tuple(order)
        whole.sync().publish()
        before = hvd.stats()[counter]
        states = [whole.saved()]
        while whole.steps < STEPS:
            states.append(whole.run(whole.steps + 1).saved())
        assert hvd.stats()[counter] == before + 1
        pools = [state["strategy"]["pool"] for state in states]
        assert any(pool["waits"] for pool in pools)
        assert any(pool["ordering"] for pool in pools) == (counter == "pool_orders")
        for state in states:
            again = Training(CSC).load(state)
            same(again.saved(), state, f"step {state['steps']}")
            same(again.run().saved(), states[-1], f"step {state['steps']}")


@contextmanager
def _patient_for(steps: int) -> Iterator[None]:
    before, pool_tuner.PATIENCE = pool_tuner.PATIENCE, steps
    try:
        yield
    finally:
        pool_tuner.PATIENCE = before


class Turning(Training):
    """Its gradients come in another order from the fourth step on."""

    def step(self) -> None:
        self.optimizer.zero_grad()
        every = list(self.model.parameters())
        terms = [one.square().sum() for one in (every if self.steps < 3 else reversed(every))]
        (torch.stack(terms).sum() * (1 + self.steps + hvd.rank())).backward()
        self.optimizer.step()
        self.steps += 1


@needs_ranks(2)
def check_the_order_is_watched_from_the_state_on() -> None:
    with _patient_for(4):
        before = hvd.stats()["pool_orders"]
        whole = Turning(CSC)
        states = []
        while whole.steps < STEPS:
            states.append(whole.run(whole.steps + 1).saved())
        assert hvd.stats()["pool_orders"] == before + 1
        for state in states:
            same(Turning(CSC).load(state).run().saved(), states[-1], f"step {state['steps']}")
