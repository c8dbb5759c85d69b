"""Optimizers that step in methods of their own: strategies that count steps say so once, and only then."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from ranks import Check, run_check

LOCAL = "local_sgd:period=3,within_node=period"
COUNTING = (
    LOCAL,
    "daso:total_epochs=9",
    "csc:keep=0.5,momentum=none,warmup=4",
    "topk:momentum=none,warmup=4",
)
ALL = (*COUNTING, "adasum")


@pytest.mark.parametrize("np", [1, 2, 4])
def test_uncounted_steps(np: int, check: Check) -> None:
    run_check(check, np)


class SAM(torch.optim.Optimizer):
    """Sharpness-aware minimisation with rho = 1 and unnormalised ascent, in the form that people copy."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})
        self.base_optimizer = torch.optim.SGD(self.param_groups, lr=0.25)
        self.param_groups = self.base_optimizer.param_groups
        self.wrapped: torch.optim.Optimizer = self

    def _each(self) -> list[torch.Tensor]:
        return [one for group in self.param_groups for one in group["params"] if one.grad is not None]

    @torch.no_grad()
    def first_step(self) -> None:
        for one in self._each():
            self.state[one]["ascent"] = one.grad.clone()  # type: ignore[union-attr]
            one.add_(self.state[one]["ascent"])
        self.wrapped.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        for one in self._each():
            one.sub_(self.state[one]["ascent"])
        self.base_optimizer.step()
        self.wrapped.zero_grad()


def _model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).to(dtype)


def _backward(model: nn.Module, scaler: torch.amp.GradScaler | None = None, factor: float = 1.0) -> None:
    dtype = next(model.parameters()).dtype
    loss = model(torch.full((2, 4), hvd.rank() + 1.0, dtype=dtype)).square().sum() * factor
    (loss if scaler is None else scaler.scale(loss)).backward()


def _heard(train: Callable[[], None]) -> list[str]:
    """Returns the warnings that this file is about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train()
    return [str(each.message) for each in caught if "whose step() is called" in str(each.message)]


def _sam(
    strategy: str, outside: bool, dtype: torch.dtype = torch.float32, **more: Any
) -> tuple[nn.Module, list[str]]:
    """Trains with SAM around the wrapped optimizer (outside), or with SAM wrapped."""
    model = _model(dtype)
    sam = SAM(model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # all ranks are on one node
        sam.wrapped = hvd.DistributedOptimizer(
            sam.base_optimizer if outside else sam, strategy=strategy, **more
        )

    def train() -> None:
        for _ in range(6):
            _backward(model)
            sam.first_step()
            _backward(model)
            sam.second_step()

    return model, _heard(train)


def check_a_wrapped_sam_is_said_once() -> None:
    for strategy in ALL:
        _, heard = _sam(strategy, outside=False)
        assert len(heard) == int(hvd.size() > 1), (strategy, heard)
        name = strategy.partition(":")[0]
        assert all(part in text for text in heard for part in (name, "SAM", "step()", "base_optimizer"))


def check_sam_around_the_wrapped_optimizer_is_silent() -> None:
    for strategy in ALL:
        assert _sam(strategy, outside=True)[1] == [], strategy


def check_masters_need_step() -> None:
    """The parameters of halves stay as they are: with every strategy, and on one rank too."""
    for strategy in ("dense", LOCAL):
        model, heard = _sam(strategy, outside=False, dtype=torch.bfloat16, master_weights=True)
        assert len(heard) == 1, heard
        assert all(part in heard[0] for part in ("fp32 masters", "SAM", "step()"))
        assert all(map(torch.equal, model.parameters(), _model(torch.bfloat16).parameters()))


def check_a_masters_ascent_is_said() -> None:
    """SAM changes the masters, which the second backward does not see."""
    _, heard = _sam("dense", outside=True, dtype=torch.bfloat16, master_weights=True)
    assert len(heard) == 1, heard
    assert "change parameters and not masters" in heard[0]


def check_dense_is_right_and_silent() -> None:
    for outside in (True, False):
        weight = nn.Parameter(torch.zeros(3))
        sam = SAM([weight])
        hvd.DistributedOptimizer(sam.base_optimizer if outside else sam, strategy="dense")
        mean = (hvd.size() - 1) / 2

        def train(weight: nn.Parameter = weight, sam: SAM = sam) -> None:
            for _ in range(4):  # the gradient of rank r is w - r, that after the ascent twice as much
                ((weight - hvd.rank()).square().sum() / 2).backward()
                sam.first_step()
                ((weight - hvd.rank()).square().sum() / 2).backward()
                sam.second_step()

        assert _heard(train) == []
        assert weight.tolist() == [mean * (1 - 0.5**4)] * 3


def check_a_base_optimizer_and_a_change_by_hand_are_said() -> None:
    for change in ("base", "hand"):
        model = _model()
        base = torch.optim.SGD(model.parameters(), lr=0.01)
        wrapped = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), strategy=LOCAL)

        def train(
            model: nn.Module = model, base: Any = base, wrapped: Any = wrapped, by: str = change
        ) -> None:
            for _ in range(8):
                wrapped.zero_grad()
                _backward(model)
                if by == "base":
                    base.step()
                else:
                    with torch.no_grad():
                        for one in model.parameters():
                            one.add_(one.grad, alpha=-0.01)  # type: ignore[arg-type]

        assert len(_heard(train)) == int(hvd.size() > 1), change


def _train(
    strategy: str, around: Callable[[nn.Module, Any, int], None], dtype: Any = torch.float32
) -> list[str]:
    """Trains for 6 rounds of `around`."""
    model = _model(dtype)
    plain = torch.optim.SGD(model.parameters(), lr=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = hvd.DistributedOptimizer(plain, strategy=strategy, master_weights=dtype != torch.float32)

    def train() -> None:
        for round_ in range(6):
            around(model, optimizer, round_)

    heard = _heard(train)
    if strategy.startswith(("local", "daso")):
        hvd.strategies.of(optimizer).average()  # type: ignore[attr-defined]
    return heard


def _accumulation(model: nn.Module, optimizer: Any, _: int) -> None:
    for _ in range(4):
        _backward(model)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()


def _never_a_step(model: nn.Module, optimizer: Any, _: int) -> None:
    _backward(model)


def _changes_after_step(model: nn.Module, optimizer: Any, _: int) -> None:
    _backward(model)
    optimizer.step()
    with torch.no_grad():
        for one in model.parameters():
            one.clamp_(-0.5, 0.5)
    optimizer.zero_grad()
    _backward(model)


def _new_values(model: nn.Module, optimizer: Any, round_: int) -> None:
    """A step now and then, and between two of them a broadcast, and a checkpoint."""
    _backward(model)
    if round_ % 2:
        optimizer.step()
        hvd.broadcast_parameters(model.state_dict(), 0)
    else:
        state = {key: value + 0 for key, value in model.state_dict().items()}
        model.load_state_dict(state)


def _going_back(model: nn.Module, optimizer: Any, _: int) -> None:
    """No step is taken, as a loss is no number each time."""
    _backward(model)
    model.load_state_dict({key: value + 0 for key, value in model.state_dict().items()})
    optimizer.load_state_dict(optimizer.state_dict())


def _own_averages(model: nn.Module, optimizer: Any, _: int) -> None:
    _backward(model)
    optimizer.step()
    _backward(model)
    if hvd.size() > 1:
        strategy = hvd.strategies.of(optimizer)
        if hasattr(strategy, "epoch_ended"):
            strategy.epoch_ended(1.0)
        elif hasattr(strategy, "average"):
            strategy.average()
    _backward(model)


def check_what_is_right_is_silent() -> None:
    arounds = (_accumulation, _never_a_step, _changes_after_step, _new_values, _going_back)
    for strategy in (LOCAL, "csc:keep=0.5,momentum=none,warmup=4"):
        for around in arounds:
            assert _train(strategy, around) == [], (strategy, around)
    for around in (_accumulation, _changes_after_step, _new_values):
        assert _train(LOCAL, around, torch.bfloat16) == [], around
    for strategy in (LOCAL, "local_sgd:period=2,within_node=period,post_local_after=2"):
        assert _train(strategy, _own_averages) == []


def check_steps_that_grad_scaler_skips_are_silent() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    skipped = [0]

    def around(model: nn.Module, optimizer: Any, round_: int) -> None:
        _backward(model, scaler, float("inf") if round_ < 4 else 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped[0] += scaler.get_scale() < before
        optimizer.zero_grad()
        with torch.no_grad():
            for one in model.parameters():
                one.clamp_(-0.5, 0.5)

    assert _train(LOCAL, around) == []
    assert skipped == [4]


def check_a_step_with_a_closure_is_silent() -> None:
    """LBFGS changes the weights between the closure's calls."""
    model = _model()
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5), strategy=LOCAL
    )
    calls = [0]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(torch.full((2, 4), hvd.rank() + 1.0)).square().sum()
        loss.backward()
        calls[0] += 1
        return loss

    def train() -> None:
        for _ in range(3):
            optimizer.step(closure)

    assert _heard(train) == []
    assert calls[0] > 6


def check_the_hooks_go_with_the_optimizer() -> None:
    model = _model()
    first = next(iter(model.parameters()))

    def hooks() -> int:
        return len(first._post_accumulate_grad_hooks or ())  # type: ignore[attr-defined]

    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), strategy=LOCAL)
    assert hooks() == int(hvd.size() > 1)
    hvd.DistributedOptimizer(optimizer, strategy=LOCAL)
    assert hooks() == int(hvd.size() > 1)
    del optimizer
    assert hooks() == 0
