"""Weight decay and momentum with CSC and TopK are SGD's, where a technique applies and where it does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay.torch.strategies._lossy.sgd_steps import DECAY_KEY

SIZES = (70, 300, 5, 128, 33)
FINE = "dense_below=6"
CSC = f"csc:chunk_elements=8,{FINE}"
TOPK = f"topk:{FINE},select=radix"


@pytest.mark.parametrize("np", [1, 2, pytest.param(4, marks=pytest.mark.nightly)])
def test_decay(np: int, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_THETA": "512"})  # several buckets


class Twins:
    """The same parameters twice: those of a strategy, and those that plain SGD steps."""

    def __init__(self, strategy: Any, dtype: torch.dtype = torch.float32, **settings: Any) -> None:
        chance = torch.Generator("cpu").manual_seed(2)
        first = [torch.randn(size, generator=chance, device="cpu") for size in SIZES]
        half = dtype != torch.float32
        self.parameters = [nn.Parameter(one.to(dtype)) for one in first]
        self.plain = [nn.Parameter(one.detach().float().clone()) for one in self.parameters]
        settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, **settings}
        self.optimizer: Any = hvd.DistributedOptimizer(
            torch.optim.SGD(_groups(self.parameters, settings), **settings),
            strategy=strategy,
            master_weights=half,
        )
        self.sgd = torch.optim.SGD(_groups(self.plain, settings), **settings)
        self.strategy = hvd.strategies.of(self.optimizer)

    @property
    def stepped(self) -> list[nn.Parameter]:
        """The parameters or their masters."""
        return [one for group in self.optimizer.param_groups for one in group["params"]]

    def set(self, **settings: float) -> None:
        """Changes settings of all groups."""
        for group in (*self.optimizer.param_groups, *self.sgd.param_groups):
            group.update(settings)

    def step(self, gradients: list[torch.Tensor | None], backwards: int = 1) -> None:
        """Takes a step with this rank's gradients. Plain SGD gets their mean."""
        self.optimizer.zero_grad()
        self.sgd.zero_grad()
        for _ in range(backwards):
            pairs = zip(self.parameters, gradients, strict=True)
            terms = [(one * each.to(one)).sum() for one, each in pairs if each is not None]
            torch.stack(terms).sum().backward()
        for one, each in zip(self.plain, gradients, strict=True):
            if each is not None:
                one.grad = backwards * hvd.allreduce(each, op=hvd.Average)
        self.optimizer.step()
        self.sgd.step()

    def require_equal(self, most: int, where: Any = "") -> None:
        """The distance is at most so many ulps of each element."""
        for ours, theirs in zip(self.stepped, self.plain, strict=True):
            distance = ours.detach().view(torch.int32) - theirs.detach().view(torch.int32)
            assert int(distance.abs().max()) <= most, (self.strategy and self.strategy.text, where)


def _groups(parameters: list[nn.Parameter], settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Two groups; the second has three times the decay."""
    decay = settings["weight_decay"]
    return [{"params": parameters[:2]}, {"params": parameters[2:], "weight_decay": 3 * decay}]


def zeros() -> list[torch.Tensor | None]:
    return [torch.zeros(size) for size in SIZES]


def randoms(chance: torch.Generator) -> list[torch.Tensor | None]:
    return [torch.randn(size, generator=chance, device="cpu") for size in SIZES]


def _decay(strategy: Any, dtype: torch.dtype = torch.float32, **settings: Any) -> Twins:
    """Steps with gradients of zero: with a schedule, a flush, a second backward and unused parameters."""
    twins = Twins(strategy, dtype, **settings)
    for step in range(18):
        if step == 8:
            twins.set(lr=0.02)
        if step in (10, 14):
            twins.set(weight_decay=0.0 if step == 10 else 0.05)
        gradients = zeros()
        if step == 12:
            gradients[3] = None  # a part of a bucket is ready
        if step == 15 and twins.strategy is not None:
            twins.strategy.flush()
        twins.step(gradients, backwards=2 if step == 13 else 1)
        twins.require_equal(4, step)
    return twins


def check_decay_of_csc() -> None:
    for momentum in ("masked", "local"):
        for keep in ("1", "0.99", "0.25", "0.1,warmup=5", "0.1,warmup=4/1+8/0.5"):
            _decay(f"{CSC},keep={keep},momentum={momentum}", nesterov=keep != "0.25")
    _decay(f"{CSC},keep=0.25,momentum=local,masking=0")
    _decay(f"{CSC},keep=0.25,momentum=none")


def check_decay_of_topk() -> None:
    for density in ("1", "0.99", "0.1,warmup=5", "0.1,masking=0", "0.1,momentum=none"):
        _decay(f"{TOPK},density={density}", nesterov=density == "0.99")


def check_decay_with_other_settings_of_sgd() -> None:
    others: list[dict[str, Any]] = [
        {"maximize": True, "foreach": True},
        {"momentum": 0.0},
        {"lr": torch.tensor(0.1), "foreach": False},
        {"dtype": torch.bfloat16},
    ]
    for settings in others:
        for momentum in ("masked", "local"):
            _decay(f"{CSC},keep=0.1,warmup=5,momentum={momentum}", **settings)


def check_decay_while_auto_tries_csc() -> None:
    """Before it does so for the first time, the momentum of decay is told apart."""
    auto = hvd.strategies.Auto(["dense", hvd.strategies.parse(f"{CSC},keep=0.25")], trial_steps=2)
    twins = _decay(auto)
    has = [DECAY_KEY in twins.optimizer.state[one] for one in twins.parameters]
    assert has == [hvd.size() > 1 and size >= 6 for size in SIZES]


def check_without_decay_there_is_no_buffer_of_it() -> None:
    chance = torch.Generator("cpu").manual_seed(hvd.rank())
    for momentum in ("masked", "local"):
        twins = Twins(f"{CSC},keep=0.25,momentum={momentum}", weight_decay=0.0)
        for _ in range(6):
            twins.step(randoms(chance))
        assert not any(DECAY_KEY in state for state in twins.optimizer.state.values())


@needs_ranks(2)
def check_the_momentum_of_decay_is_saved_and_broadcast() -> None:
    """Not that of parameters that go densely: it is forgotten when the buckets show which these are."""
    text = f"{CSC},keep=0.25,dense_parameters=noname.1.1"
    twins, others = Twins(text), Twins(text)
    chance = torch.Generator("cpu").manual_seed(hvd.rank())
    for _ in range(6):
        twins.step(randoms(chance))
    has = [DECAY_KEY in twins.optimizer.state[one] for one in twins.parameters]
    assert has == [True, True, False, False, True]
    if hvd.rank() == 0:
        others.optimizer.load_state_dict(twins.optimizer.state_dict())
    hvd.broadcast_optimizer_state(others.optimizer, 0)
    for one, other in zip(twins.parameters, others.parameters, strict=True):
        states = twins.optimizer.state[one], others.optimizer.state[other]
        assert states[0].keys() == states[1].keys()
        assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def check_without_masking_all_is_sgd() -> None:
    """To the bit where everything is sent: such a step is dense."""
    others: list[dict[str, Any]] = [{}, {"nesterov": True}, {"maximize": True}]
    for settings in others:
        for text in (f"{CSC},keep=1,momentum=local,masking=0", f"{TOPK},density=1,masking=0"):
            chance = torch.Generator("cpu").manual_seed(hvd.rank())
            ours, dense = Twins(text, **settings), Twins("dense", **settings)
            for _ in range(12):
                gradients = randoms(chance)
                for each in (ours, dense):
                    each.step(gradients)
            for one, other in zip(ours.parameters, dense.parameters, strict=True):
                assert torch.equal(one, other)


def check_without_masking_a_technique_that_sends_nearly_all_is_nearly_sgd() -> None:
    """Of all chunks or elements one waits in a step: those that were always sent are some ulps from SGD's."""
    others: list[dict[str, Any]] = [{}, {"nesterov": True}]
    for settings in others:
        for text in (f"{CSC},momentum=local,masking=0,keep=", f"{TOPK},masking=0,density="):
            chance = torch.Generator("cpu").manual_seed(hvd.rank())
            twins = Twins(text + "0.999999999", **settings)
            for _ in range(20):
                twins.step(randoms(chance))
            near = torch.cat([_ulps(*pair) <= 16 for pair in zip(twins.parameters, twins.plain, strict=True)])
            assert near.double().mean() > 0.95


def _ulps(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Returns distances in ulps of the largest weight."""
    return (ours - theirs).detach().abs() / theirs.detach().abs().max() * 2.0**24


def check_dense_steps_have_the_momentum_of_sgd() -> None:
    """Where the technique has no part in the gradients, because a part of each bucket is ready."""
    for text in (f"{CSC},keep=0.5,momentum=local,warmup=5", f"{TOPK},density=0.5,warmup=5"):
        chance = torch.Generator("cpu").manual_seed(hvd.rank())
        twins, dense = Twins(text), Twins("dense")
        for step in range(14):
            gradients = randoms(chance)
            if step >= 5:
                gradients = [each if number % 2 else None for number, each in enumerate(gradients)]
            for each in (twins, dense):
                each.step(gradients)
        for one, other in zip(twins.parameters, dense.parameters, strict=True):
            assert torch.equal(one, other)


@needs_ranks(2)
def check_a_rank_that_has_joined_leaves_decay_as_it_is() -> None:
    for momentum in ("masked", "local"):
        twins = Twins(f"{CSC},keep=0.25,momentum={momentum}")
        for step in range(7 + 4 * (hvd.rank() == 0)):
            twins.optimizer.zero_grad()
            twins.sgd.zero_grad()
            torch.stack([(one * 0.0).sum() for one in twins.parameters]).sum().backward()
            for one in twins.plain:
                one.grad = torch.zeros_like(one)
            twins.optimizer.step()
            twins.sgd.step()
            twins.require_equal(4, step)
        hvd.join()
