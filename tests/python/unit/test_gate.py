"""The gate's choice: which plans are worth a trial, what is kept, and when it tries again."""

from __future__ import annotations

import itertools
import random

import pytest

from roundelay.torch import strategies
from roundelay.torch.strategies.gate import Cost, Rates, Watch, rate, seconds, worth_trying
from roundelay.torch.tuning.trials import Trials

DENSE, HALF, SPARSE = Cost(1, 1, 0), Cost(1, 0.5, 1.5), Cost(2, 0.1, 3)
COSTS = (DENSE, HALF, SPARSE)
MIXED = (True, True, False)
SIZES = (1 << 10, 1 << 22, 1 << 24)


def test_dense_is_always_tried_first() -> None:
    for beta in (1e-12, 1e-9, 1e-7):
        found = worth_trying(SIZES, COSTS, MIXED, Rates(1e-5, beta, 5e9))
        assert found[0].plan == (0, 0, 0)
        assert len({one.plan for one in found}) == len(found) <= 3


def test_the_plans_are_the_best_by_the_model() -> None:
    rates = Rates(1e-4, 1e-7, 5e9)  # a slow wire: all but the smallest bucket gain
    _, *others = worth_trying(SIZES, COSTS, MIXED, rates)
    assert others[0].plan == (2, 2, 2)
    possible = [rate(plan, SIZES, COSTS, rates) for plan in itertools.product((0, 1), repeat=3)]
    best = min(possible, key=lambda one: one.predicted or 0)
    assert others[1].plan == best.plan


def test_a_fast_wire_leaves_casts_to_large_buckets_or_none() -> None:
    fast = Rates(1e-5, 1e-12, 5e9)
    plans = [one.plan for one in worth_trying(SIZES, COSTS[:2], MIXED[:2], fast)]
    assert (0, 0, 0) in plans
    assert seconds(HALF, SIZES[2], fast) > seconds(DENSE, SIZES[2], fast)


def test_what_the_model_does_not_know_is_always_tried() -> None:
    unknown = (DENSE, HALF, None)
    plans = [one.plan for one in worth_trying(SIZES, unknown, MIXED, Rates(1e-5, 1e-9, 5e9), most=1)]
    assert (2, 2, 2) in plans
    nothing_measured = worth_trying(SIZES, COSTS, MIXED, None)
    assert [one.plan for one in nothing_measured] == [(0, 0, 0), (1, 1, 1), (2, 2, 2)]


def test_trials_keep_the_fastest_whatever_the_drift() -> None:
    chance = random.Random(5)
    cost = {"a": 1.0, "b": 0.9, "c": 1.2}
    trials = Trials(list(cost), 10, 2)
    now = 0.0
    for step in range(1000):
        wanted = trials.current
        in_use = chance.random() > 0.1 or step > 500
        now += cost[wanted] * (1 + step / 400) * (1 + chance.uniform(-0.02, 0.02))
        if trials.step_over(in_use, now):
            break
    assert trials.over
    assert trials.current == "b"


def test_the_watch_waits_for_long_changes() -> None:
    watch = Watch(1.0)
    steps = watch.STEPS * watch.WINDOWS
    assert not any(watch.step_over(1.2) for _ in range(2 * steps))
    assert not any(watch.step_over(2.0) for _ in range(steps - watch.STEPS))
    assert not any(watch.step_over(1.0) for _ in range(watch.STEPS))
    found = [watch.step_over(2.0) for _ in range(steps)]
    assert found.index(True) == steps - 1


def test_texts() -> None:
    auto = strategies.parse("auto:candidates=dense+bf16,trial_steps=3")
    assert isinstance(auto, strategies.Auto)
    assert auto.text == "auto:candidates=dense+bf16,trial_steps=3"
    assert strategies.parse(auto.text).text == auto.text
    assert strategies.Auto().text == "auto:candidates=dense+bf16,trial_steps=5"
    lossy = strategies.Auto(("bf16", strategies.CSC(keep=0.2)))
    assert "csc:keep=0.2" in lossy.text
    assert not lossy.takes_sparse
    assert strategies.Auto().takes_sparse
    assert "auto" in strategies.known()


@pytest.mark.parametrize(
    ("candidates", "trial_steps", "said"),
    [
        (("dense", "bf32"), 5, "no strategy 'bf32'"),
        (("local_sgd:period=8",), 5, "cannot be switched on and off"),
        (("bf16", "bf16"), 5, "more than once"),
        ((7,), 5, "no strategy and no text"),
        (("bf16",), 0, "trial_steps"),
        (("csc:keep=2",), 5, "keep"),
    ],
)
def test_wrong_arguments(candidates: tuple[str, ...], trial_steps: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        strategies.Auto(candidates, trial_steps)
