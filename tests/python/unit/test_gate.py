"""The gate's choice: which plans are worth a trial, what is kept, and when it tries again."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch

import roundelay.torch as hvd
from roundelay import _core
from roundelay.torch import strategies
from roundelay.torch._internal.tuning.gate import MOST_MIXED, Cost, Plan, Watch, durations, plans, seconds
from roundelay.torch._internal.tuning.search import Model, Setting, worth_trying
from roundelay.torch._internal.tuning.trial_steps import Trials
from roundelay.tuning.buckets import DEFAULT, Cuts, Link, Piece

DENSE, HALF, SPARSE = Cost(1, 1, 0), Cost(1, 0.5, 1.5), Cost(2, 0.1, 3)
COSTS = (DENSE, HALF, SPARSE)
MIXED = (True, True, False)
SIZES = (1 << 10, 1 << 22, 1 << 24)


def tried(costs: Sequence[Cost | None], link: Link | None) -> list[Setting]:
    """What a search of plans alone tries: all gradients are ready at once, so nothing hides a bucket."""
    buckets = [Piece(size, 0.0) for size in SIZES]
    return worth_trying([(DEFAULT, buckets)], Model(costs, MIXED[: len(costs)], link))


def test_dense_is_always_tried_first() -> None:
    for beta in (1e-12, 1e-9, 1e-7):
        found = tried(COSTS, Link(1e-5, beta, copy=5e9))
        assert found[0].plan == (0, 0, 0)
        assert len({one.plan for one in found}) == len(found) <= 3
        assert {one.cuts for one in found} == {DEFAULT}


def test_the_plans_are_the_best_by_the_model() -> None:
    link = Link(1e-4, 1e-7, copy=5e9)  # a slow wire: all but the smallest bucket gain
    _, *others = tried(COSTS, link)
    assert others[0].plan == (2, 2, 2)

    def predicted(plan: Plan) -> float:
        times = durations(plan, SIZES, COSTS, link)
        assert times is not None
        return sum(times)

    best = min(itertools.product((0, 1), repeat=3), key=predicted)
    assert others[1].plan == best
    assert others[1].predicted == pytest.approx(predicted(best))


def test_a_fast_wire_leaves_casts_to_large_buckets_or_none() -> None:
    fast = Link(1e-5, 1e-12, copy=5e9)
    assert (0, 0, 0) in plans(SIZES, COSTS[:2], MIXED[:2], fast)
    assert seconds(HALF, SIZES[2], fast) > seconds(DENSE, SIZES[2], fast)


def test_a_candidate_has_its_own_best_cuts() -> None:
    """Two calls a bucket want one large bucket, where dense wants two: dense is not tried with it."""
    link = Link(0.04, 1e-7)
    large = Cuts(1 << 21)
    layouts = [(DEFAULT, [Piece(1 << 20, 0.35), Piece(1 << 20, 0.4)]), (large, [Piece(1 << 21, 0.4)])]
    now, *others = worth_trying(layouts, Model((DENSE, SPARSE), (True, False), link))
    assert (now.cuts, now.plan) == (DEFAULT, (0, 0))
    assert [(one.cuts, one.plan) for one in others] == [(large, (1,))]


def test_more_buckets_than_a_proposal_has_room_for_get_no_mixture() -> None:
    link = Link(1e-4, 1e-9, copy=5e9)
    two_calls = Cost(2, 0.1, 0)  # pays in large buckets alone
    for number in (MOST_MIXED, MOST_MIXED + 1):
        sizes = [1 << 10, *[1 << 24] * (number - 1)]
        found = plans(sizes, (DENSE, two_calls), (True, True), link)
        assert any(len(set(plan)) > 1 for plan in found) == (number == MOST_MIXED)


def test_what_the_model_does_not_know_is_always_tried() -> None:
    unknown = (DENSE, HALF, None)
    assert (2, 2, 2) in [one.plan for one in tried(unknown, Link(1e-5, 1e-9, copy=5e9))]
    assert [one.plan for one in tried(COSTS, None)] == [(0, 0, 0), (1, 1, 1), (2, 2, 2)]


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


def test_algorithms_are_refused_where_sums_must_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=1.0)
    auto = strategies.Auto(("dense", "ring"))
    monkeypatch.setattr(_core, "config", lambda: SimpleNamespace(deterministic=False))
    auto.accept(optimizer, hvd.Sum)
    monkeypatch.setattr(_core, "config", lambda: SimpleNamespace(deterministic=True))
    strategies.Auto(("dense", "bf16")).accept(optimizer, hvd.Sum)
    with pytest.raises(ValueError, match="'allreduce:algorithm=ring' adds in another order"):
        auto.accept(optimizer, hvd.Sum)


def test_texts_are_read_and_written_back() -> None:
    auto = strategies.parse("auto:candidates=dense+bf16,trial_steps=3")
    assert isinstance(auto, strategies.Auto)
    assert auto.text == "auto:candidates=[dense,dense:wire=bf16],trial_steps=3"
    assert strategies.parse(auto.text).text == auto.text
    assert auto.has_saved("auto:trial_steps=3")  # its text before
    ring = strategies.parse("auto:candidates=dense+ring")
    assert ring.text == "auto:candidates=[dense,allreduce:algorithm=ring]"
    assert strategies.parse(ring.text).text == ring.text
    assert strategies.Auto().text == "auto"
    lossy = strategies.Auto(("bf16", strategies.CSC(keep=0.2, warmup=[(2, 1), (6, 0.5)]), "topk"))
    csc = "csc:keep=0.2,warmup=2/1+6/0.5"
    assert lossy.text == f"auto:candidates=[dense,dense:wire=bf16,{csc},topk:density=0.01]"
    assert strategies.parse(lossy.text).text == lossy.text
    assert not lossy.takes_sparse
    assert strategies.Auto().takes_sparse
    assert "auto" in strategies.known()


def test_what_gradients_may_lose_names_the_candidates() -> None:
    def candidates(loss: str | None) -> list[str]:
        auto = strategies.Auto(loss=loss)
        assert (
            strategies.parse(auto.text).text == auto.text == ("auto" if loss is None else f"auto:loss={loss}")
        )
        return [auto.choices.named((number,)) for number in range(len(auto.choices.costs))]

    assert candidates(None) == candidates("rounding") == ["dense", "dense:wire=bf16"]
    lossless = candidates("lossless")
    assert "allreduce:algorithm=ring" in lossless
    assert not any("wire" in text for text in lossless)
    lossy = ["quantised:bits=8", "csc:keep=0.1", "topk:density=0.01", "power_sgd:rank=2"]
    assert candidates("lossy") == [*candidates("rounding"), *lossy]
    both = "auto:candidates=[dense,csc:keep=0.1],loss=lossy"
    assert strategies.parse(both).text == both


def test_strategies_that_nobody_named_and_that_refuse_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not this one")

    monkeypatch.setattr(strategies.Quantised, "accept", refuse)
    monkeypatch.setattr(_core, "config", lambda: SimpleNamespace(deterministic=True))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=1.0)
    auto = strategies.Auto(loss="lossy")
    auto.accept(optimizer, hvd.Sum)
    named = {auto.choices.named((number,)) for number in range(len(auto.choices.costs))}
    assert {"dense", "topk:density=0.01"} < named
    assert "quantised:bits=8" not in named
    lossless = strategies.Auto(loss="lossless")
    lossless.accept(optimizer, hvd.Sum)
    assert len(lossless.choices.costs) == 1  # algorithms add in another order
    with pytest.raises(ValueError, match="not this one"):
        strategies.Auto(("quantised",), loss="lossy").accept(optimizer, hvd.Sum)


@pytest.mark.parametrize(
    ("candidates", "loss", "said"),
    [
        (("bf16",), "lossless", "'dense:wire=bf16' is rounding, which loss=lossless does not allow"),
        (("ring", "csc"), "rounding", "'csc:keep=0.1' is lossy, which loss=rounding does not allow"),
        (None, "some", "loss is 'some', but must be one of lossless, rounding, lossy"),
    ],
)
def test_a_candidate_that_loses_more_is_refused(
    candidates: tuple[str, ...] | None, loss: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        strategies.Auto(candidates, loss=loss)


def test_a_short_warmup_is_over_before_a_trial_is_measured() -> None:
    assert "warmup=6" in strategies.Auto(("csc:keep=0.1,warmup=6",)).text


@pytest.mark.parametrize(
    ("candidates", "trial_steps", "said"),
    [
        (("dense", "bf32"), 5, "no strategy 'bf32'"),
        (("local_sgd:period=8",), 5, "cannot be switched on and off"),
        (("bf16", "bf16"), 5, "more than once"),
        (("bf16", "half"), 5, "more than once"),
        ((7,), 5, "no strategy and no text"),
        (("bf16",), 0, "trial_steps"),
        (("csc:keep=2",), 5, "keep"),
        (("csc:keep=0.1,warmup=7",), 5, "warmup of 7 steps.*at most 6 steps"),
        (("topk:density=0.1,warmup=3/0.5+9/0.2",), 5, "warmup of 9 steps.*at most 6 steps"),
        (("power_sgd:rank=2,warmup=7",), 5, "warmup of 7 steps.*at most 6 steps"),
    ],
)
def test_wrong_arguments(candidates: tuple[str, ...], trial_steps: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        strategies.Auto(candidates, trial_steps)
