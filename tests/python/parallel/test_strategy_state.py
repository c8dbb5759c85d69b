"""Techniques with state: nothing is lost or sent twice, states load back, layouts wait for a flush.

Gradients are small whole numbers in fp32 and are summed, so that every sum is exact. "cyclic" sends a part of
each bucket in a step, "csc" the chunks with the largest norms, "topk" the largest elements; the rest is kept
back.
"""

from __future__ import annotations

import copy
import io
import random
import re
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from exact_training import Training
from own_strategies import Choosing
from ranks import Check, run_check
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from roundelay.tuning.buckets import Cuts
from technique_libraries import CYCLIC, NEGATE, canonical

STRATEGIES = (f"{CYCLIC}:parts=3", "csc:keep=0.3,chunk_elements=4,dense_below=6")
ON_CPUS = ("topk:density=0.3,dense_below=6",)


@pytest.mark.parametrize("np", [2, 4])
def test_strategy_state(np: int, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_THETA": "256"})  # several buckets


def test_trials_end_where_there_is_state(check: Check) -> None:
    run_check(check, 2, env={"HOROVOD_AUTOTUNE": "1"})


def _bytes_kept(state: dict[str, Any]) -> list[list[int]]:
    return [bucket["state"].tolist() for bucket in state["buckets"].values()]


def _strategies() -> tuple[str, ...]:
    return STRATEGIES + ON_CPUS if torch.get_default_device().type == "cpu" else STRATEGIES


def check_nothing_is_lost() -> None:
    for strategy in _strategies():
        _lose_nothing(Training(strategy))


def _lose_nothing(training: Training) -> None:
    events = random.Random(7)  # the same on all ranks
    for _ in range(30):
        event = events.random()
        if event < 0.15:
            training.flush()
        elif event < 0.3:  # only some layers, not the same ones on all ranks
            training.step([0, 1] if hvd.rank() == 0 else [1, 2])
        elif event < 0.45:  # a second backward
            training.optimizer.zero_grad()
            training.backward()
            training.backward()
            training.optimizer.step()
        elif event < 0.55:
            with hvd.join_context(training.optimizer) as context:
                for _ in range(1 + (hvd.rank() + len(training.given)) % 3):
                    training.step()
            assert context.last_rank is not None
            hvd.broadcast_parameters(training.parameters, context.last_rank)
        else:
            training.step()
            assert any(map(any, _bytes_kept(training.strategy.state_dict())))
    training.check_all_came()


def check_nothing_is_lost_when_techniques_change() -> None:
    texts = (f"{CYCLIC}:parts=3", NEGATE, "csc:keep=0.3,chunk=4", None)
    strategy = Choosing(lambda bucket, step: texts[(bucket.index + step // 4) % 4])
    training = Training(strategy)
    for _ in range(40):
        training.step()
    used = {text for _, rows in training.techniques.table.traffic() for text, *_ in rows}
    assert {re.split("[@:]", text)[0] for text in used} >= {"cyclic", "negate", "csc"}
    training.check_all_came()


def check_layouts_wait_for_a_flush() -> None:
    """Rank 0 proposes other cuts and another order at any time."""
    training = Training(Choosing(lambda bucket, step: f"{CYCLIC}:parts=3"))
    assert isinstance(training.strategy, Choosing)
    for _ in range(4):
        training.step()
    before = hvd.stats()
    events = random.Random(3)
    wrapper = wrapper_of(training.optimizer)
    assert wrapper is not None
    assert wrapper.gradient_hooks.sync is not None
    plan = wrapper.gradient_hooks.sync._plan
    for step in range(60):
        if plan._pool_tuner is not None and plan._layout.pools is not None and step % 5 == 0:
            plan._pool_tuner.cuts = Cuts(events.choice([64, 128, 320, 10**6]), 0)
            if step % 10 == 0:
                order = plan._layout.pools.gradients()
                events.shuffle(order)
                plan._pool_tuner.order = tuple(order)
            wrapper.gradient_hooks.sync.publish()
        training.step()
    work = hvd.stats()
    assert work["pool_cuts"] - before["pool_cuts"] >= 3
    assert work["pool_orders"] - before["pool_orders"] >= 2
    assert training.strategy.calls.count("layout") >= 5
    training.check_all_came()


def check_a_state_loads_back_bit_for_bit() -> None:
    for strategy in _strategies():
        _load_back(strategy)


def _load_back(strategy: str) -> None:
    sizes = (300, 200, 1)
    training = Training(strategy, sizes)
    for _ in range(7):
        training.step()
    file = io.BytesIO()
    torch.save(training.strategy.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    weights = [parameter.detach().clone() for parameter in training.parameters]
    given = [one.clone() for one in training.given]
    chance = training.chance.get_state()
    trained = []
    for _ in range(2):
        again = Training(strategy, sizes)
        again.strategy.load_state_dict(copy.deepcopy(state))
        assert _equal(again.strategy.state_dict(), state)
        again.chance.set_state(chance)
        for parameter, weight in zip(again.parameters, weights, strict=True):
            parameter.data.copy_(weight)
        again.given = [one.clone() for one in given]
        assert again.techniques.stateful
        for _ in range(7):
            again.step()
        trained.append(again)
    first, second = trained
    assert all(map(torch.equal, first.parameters, second.parameters))
    assert _equal(first.strategy.state_dict(), second.strategy.state_dict())
    first.check_all_came()


def check_a_state_is_not_loaded_into_buckets_in_use() -> None:
    """They keep something else, which would be lost or sent twice."""
    for strategy in _strategies():
        training = Training(strategy)
        for _ in range(5):
            training.step()
        state = training.strategy.state_dict()
        training.step()
        kept = copy.deepcopy(training.strategy.state_dict())
        with pytest.raises(ValueError, match="only before the first step"):
            training.strategy.load_state_dict(state)
        assert _equal(training.strategy.state_dict(), kept)
        training.check_all_came()
        hvd.DistributedOptimizer(training.optimizer, op=hvd.Sum, strategy=strategy)  # as the error says
        again = hvd.strategies.of(training.optimizer)
        again.load_state_dict(state)
        assert _equal(again.state_dict(), state)
        for _ in range(4):
            training.step()


def _equal(these: dict[str, Any], those: dict[str, Any]) -> bool:
    for key in these.keys() - {"buckets"}:
        assert these[key] == those[key], key
    assert these["buckets"].keys() == those["buckets"].keys()
    return all(
        bucket["technique"] == those["buckets"][name]["technique"]
        and bucket["run"] == those["buckets"][name]["run"]
        and torch.equal(bucket["state"], those["buckets"][name]["state"])
        for name, bucket in these["buckets"].items()
    )


def check_states_of_others_are_refused() -> None:
    training = Training()
    for _ in range(4):
        training.step()
    state = training.strategy.state_dict()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "no state of a strategy"),
        ({"format": 1}, "no state of a strategy of format 3"),
        ({"format": 2}, "incomplete"),
        ({"format": 3}, "incomplete"),
        ({**state, "rank": (state["rank"] + 1) % hvd.size()}, "another rank"),
        ({**state, "world_size": 64}, "another world size: it is of a job of 64 ranks"),
        ({**state, "strategy": canonical(f"{CYCLIC}:parts=7")}, "another strategy"),
        ({**state, "parameters": {**state["parameters"], "more": [[3], "float32"]}}, "another model: 'more'"),
    ]
    again = Training()
    for other, words in wrong:
        with pytest.raises(ValueError, match="state") as raised:
            again.strategy.load_state_dict(other)
        assert words in str(raised.value)
    assert not again.techniques.may_keep()  # nothing has changed
    for _ in range(4):
        again.step()
    again.check_all_came()
    training.check_all_came()


def check_ranks_that_loaded_different_states() -> None:
    training = Training()
    for _ in range(4):
        training.step()
    state = training.strategy.state_dict()
    again = Training()
    if hvd.rank() == 0:
        again.strategy.load_state_dict(state)
    with pytest.raises(hvd.HorovodInternalError, match="do not belong together"):
        again.step()
    again.optimizer.zero_grad()
    for _ in range(4):
        again.step()


def check_a_loaded_state_is_not_lost_by_wrapping_again() -> None:
    training = Training()
    for _ in range(4):
        training.step()
    again = Training()
    again.strategy.load_state_dict(training.strategy.state_dict())
    with pytest.raises(ValueError, match="has loaded a state"):
        hvd.DistributedOptimizer(again.optimizer, op=hvd.Sum, strategy=f"{CYCLIC}:parts=3")
    assert again.techniques.may_keep()
    for _ in range(4):
        again.step()


def check_a_new_job_begins_with_nothing_kept() -> None:
    for strategy in _strategies():
        used, loaded = Training(strategy), Training(strategy)
        for _ in range(5):
            used.step()
        loaded.strategy.load_state_dict(used.strategy.state_dict())
        hvd.shutdown()
        hvd.init()
        assert not used.techniques.may_keep()
        assert not loaded.techniques.may_keep()
        for training in (used, loaded):
            for parameter, given in zip(training.parameters, training.given, strict=True):
                parameter.data.zero_()
                given.zero_()
            for _ in range(5):
                training.step()
            assert training.techniques.stateful
            training.check_all_came()


def check_state_stays_with_its_optimizer() -> None:
    """It is in no state of the optimizer's, and nothing that users do with that loses it."""
    training = Training()
    for _ in range(5):
        training.step()
    kept = _bytes_kept(training.strategy.state_dict())
    assert not training.optimizer.state
    copy.deepcopy(training.optimizer)
    torch.optim.lr_scheduler.ConstantLR(training.optimizer, 1.0)
    training.optimizer.load_state_dict(training.optimizer.state_dict())
    hvd.broadcast_optimizer_state(training.optimizer, 0)
    training.optimizer.zero_grad(set_to_none=False)
    training.optimizer.zero_grad()
    assert _bytes_kept(training.strategy.state_dict()) == kept
    training.check_all_came()


def check_another_strategy_needs_a_flush() -> None:
    training = Training()
    for _ in range(5):
        training.step()
    with pytest.raises(ValueError, match="keeps gradients back") as raised:
        hvd.DistributedOptimizer(training.optimizer, op=hvd.Sum, strategy="dense")
    assert "flush() and take a step" in str(raised.value)
    assert hvd.strategies.of(training.optimizer) is training.strategy
    training.check_all_came()
    hvd.DistributedOptimizer(training.optimizer, op=hvd.Sum, strategy="dense")
    assert hvd.strategies.of(training.optimizer).text == "dense"
