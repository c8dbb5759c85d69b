"""A run from a checkpoint has the bits of one without a break: k + (n - k) steps are n steps.

Models are small and their gradients are no whole numbers; several buckets, each with a technique.
"""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from own_strategies import Choosing
from ranks import run_checks
from roundelay.buckets import Cuts
from roundelay.torch.gradients import pool_tuner
from roundelay.torch.gradients.pool_plan import PoolPlan
from roundelay.torch.optimizer import wrapper_of

CSC = "csc:keep=0.3,chunk_elements=4,dense_below=6"
TOPK = "topk:density=0.2,dense_below=6"
POWER_SGD = "power_sgd:rank=1,dense_below=6"
STEPS = 16
FOLDER = "RESUME_FOLDER"  # of two jobs' checkpoints
ENV = {"ROUNDELAY_THETA": "256"}  # several buckets


@pytest.mark.parametrize("np", [1, 2, 4])
def test_resume(np: int) -> None:
    run_checks(__file__, np, env=ENV)


def test_resume_in_another_job(tmp_path: Path) -> None:
    for _ in range(2):
        run_checks(__file__, 2, env={**ENV, FOLDER: str(tmp_path)}, fresh=True)


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def _nesterov(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True)


def _adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.05)


class Training:
    """A model whose data depend on the rank and the step only. clip, passes, cycle, scale: what is used."""

    def __init__(
        self,
        strategy: Any,
        make: Callable[[Any], torch.optim.Optimizer] = _sgd,
        clip: bool = False,
        passes: int = 1,
        cycle: bool = False,
        scale: bool = False,
        dtype: torch.dtype = torch.float32,
        compression: Any = hvd.Compression.none,
    ) -> None:
        torch.manual_seed(5)
        layers = [nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 10), nn.Tanh(), nn.Linear(10, 3)]
        self.model = nn.Sequential(*layers).to(dtype)
        self.dtype, self.clip, self.passes = dtype, clip, passes
        self.optimizer: Any = hvd.DistributedOptimizer(
            make(self.model.parameters()),
            self.model.named_parameters(),
            backward_passes_per_step=passes,
            strategy=strategy() if callable(strategy) else strategy,
            master_weights=dtype != torch.float32,
            compression=compression,
        )
        self.strategy = hvd.strategies.of(self.optimizer)
        self.cycle = (
            torch.optim.lr_scheduler.OneCycleLR(
                self.optimizer, max_lr=0.1, total_steps=STEPS + 1, cycle_momentum=False
            )
            if cycle
            else None
        )
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3) if scale else None
        self.steps = 0

    def step(self) -> None:
        self.optimizer.zero_grad()
        for number in range(self.passes):
            seed = 1000 * self.steps + 10 * hvd.rank() + number
            data = torch.randn(4, 12, generator=torch.Generator("cpu").manual_seed(seed)).to(self.dtype)
            loss = self.model(data).float().square().mean()
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if self.clip:
            if self.scaler is not None:
                self.scaler.unscale_(self.optimizer)
            every = [one for group in self.optimizer.param_groups for one in group["params"]]
            torch.nn.utils.clip_grad_norm_(every, 0.1)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if self.cycle is not None:
            self.cycle.step()
        self.steps += 1

    def run(self, until: int = STEPS) -> Training:
        while self.steps < until:
            self.step()
        return self

    def _parts(self) -> dict[str, Any]:
        parts = {"model": self.model, "optimizer": self.optimizer, "strategy": self.strategy}
        return parts | {name: one for name in ("cycle", "scaler") if (one := getattr(self, name)) is not None}

    def saved(self) -> dict[str, Any]:
        states = {name: part.state_dict() for name, part in self._parts().items()}
        file = io.BytesIO()
        torch.save({"steps": self.steps, **states}, file)
        file.seek(0)
        loaded: dict[str, Any] = torch.load(file, weights_only=True)
        return loaded

    def load(self, state: dict[str, Any]) -> Training:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.steps = state["steps"]
        return self

    def buckets(self) -> int:
        wrapper = wrapper_of(self.optimizer)
        assert wrapper is not None
        return wrapper.buckets()


def _same(this: Any, that: Any, where: str = "") -> None:
    assert type(this) is type(that), where
    if isinstance(this, torch.Tensor):
        assert torch.equal(this, that), where
    elif isinstance(this, dict):
        assert this.keys() == that.keys(), where
        for key in this:
            _same(this[key], that[key], f"{where}.{key}")
    elif isinstance(this, list | tuple):
        assert len(this) == len(that), where
        for number, pair in enumerate(zip(this, that, strict=True)):
            _same(*pair, f"{where}.{number}")
    else:
        assert this == that, where


EVERYTHING = {"clip": True, "passes": 2, "cycle": True}
RUNS: list[tuple[str, dict[str, Any]]] = [
    (CSC, {}),
    (CSC, EVERYTHING),
    (f"{CSC},momentum=local", {"make": _nesterov, **EVERYTHING}),
    (f"{CSC},momentum=none", {"make": _adamw, **EVERYTHING}),
    (f"{CSC},norms=previous", {"clip": True, "cycle": True}),
    (f"{CSC},norms=previous,momentum=none", {"make": _adamw}),
    (f"{CSC},warmup=10", {"scale": True}),
    (f"{CSC},momentum=none", {"make": _adamw, "scale": True, "clip": True}),
    (f"{CSC},wire=bf16", {"dtype": torch.bfloat16}),
    (CSC, {"compression": hvd.Compression.fp16}),
    (TOPK, EVERYTHING),
    (f"{TOPK},momentum=none", {"make": _adamw, **EVERYTHING}),
    (POWER_SGD, EVERYTHING),
    (POWER_SGD, {"make": _adamw, **EVERYTHING}),
    ("dense", EVERYTHING),
]


def check_eight_and_eight_steps_are_sixteen() -> None:
    if FOLDER in os.environ:
        return
    for strategy, settings in RUNS:
        training = Training(strategy, **settings).run(8)
        state = training.saved()
        again = Training(strategy, **settings).load(state)
        assert again.buckets() == training.buckets()
        _same(again.saved(), state, strategy)
        _same(again.run().saved(), training.run().saved(), f"{strategy} {settings}")
        if hvd.size() > 1:
            assert again.buckets() > 1
            _check_has_kept(again)


def _check_has_kept(training: Training) -> None:
    if training.strategy.text == "dense":
        return
    state = training.saved()["strategy"]
    assert any(bucket["unflushed"] and bucket["run"] > 0 for bucket in state["buckets"].values())


def check_another_job_goes_on() -> None:
    """The first job saves after 8 steps and at the end; the second one has other processes, and resumes."""
    if FOLDER not in os.environ:
        return
    for number, (strategy, settings) in enumerate(RUNS):
        path = Path(os.environ[FOLDER]) / f"{number}-{hvd.rank()}.pt"
        if not path.exists():
            training = Training(strategy, **settings).run(8)
            torch.save((os.getpid(), training.saved(), training.run().saved()), path)
            continue
        pid, half, end = torch.load(path, weights_only=True)
        assert pid != os.getpid()
        _same(Training(strategy, **settings).load(half).run().saved(), end, f"{strategy} {settings}")


def check_a_state_of_any_step() -> None:
    """The pool comes into use in the same step, also where the state was saved before it was."""
    if FOLDER in os.environ:
        return
    for strategy in (CSC, POWER_SGD, "dense"):
        whole = Training(strategy)
        states = [whole.saved()]
        for until in range(1, 7):
            states.append(whole.run(until).saved())
        end = whole.run(10).saved()
        for state in states:
            again = Training(strategy).load(state)
            _same(again.saved(), state, f"step {state['steps']}")
            _same(again.run(10).saved(), end, f"{strategy}, {state['steps']}")


def _changing() -> Choosing:
    texts = ("cyclic:parts=3", "csc:keep=0.3,chunk=4", "negate", "cyclic:parts=2")
    return Choosing(lambda bucket, step: texts[(bucket.index + step // 4) % 4])


def check_a_state_of_any_step_of_a_flush() -> None:
    """Techniques change, and buckets are flushed first; the user flushes, too."""
    if FOLDER in os.environ or hvd.size() == 1:
        return
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
        _same(again.saved(), state, f"step {state['steps']}")
        if state["steps"] < 6:
            again.run(6).strategy.flush()
        _same(again.run().saved(), end, f"step {state['steps']}")


def check_a_state_of_any_step_of_a_new_layout() -> None:
    """Rank 0 has proposed other sizes, or another order, and the ranks flush before they take them."""
    if FOLDER in os.environ or hvd.size() == 1:
        return
    for counter in ("pool_cuts", "pool_orders"):
        whole = Training(CSC).run(5)
        plan = _plan(whole)
        if plan._pool_tuner is not None and plan._pools is not None and counter == "pool_cuts":
            plan._pool_tuner.cuts = Cuts(512)
        elif plan._pool_tuner is not None and plan._pools is not None:
            order = plan._pools.gradients()
            random.Random(3).shuffle(order)
            plan._pool_tuner.order = tuple(order)
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
            _same(again.saved(), state, f"step {state['steps']}")
            _same(again.run().saved(), states[-1], f"step {state['steps']}")


def _plan(training: Training) -> PoolPlan:
    wrapper = wrapper_of(training.optimizer)
    assert wrapper is not None
    assert wrapper._sync is not None
    return wrapper._sync._plan


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
        terms = [parameter.square().sum() for parameter in self.model.parameters()]
        for term in terms if self.steps < 3 else reversed(terms):
            (term * (1 + self.steps + hvd.rank())).backward()
        self.optimizer.step()
        self.steps += 1


def check_the_order_is_watched_from_the_state_on() -> None:
    if FOLDER in os.environ or hvd.size() == 1:
        return
    with _patient_for(4):
        before = hvd.stats()["pool_orders"]
        whole = Turning(CSC)
        states = []
        while whole.steps < STEPS:
            states.append(whole.run(whole.steps + 1).saved())
        assert hvd.stats()["pool_orders"] == before + 1
        for state in states:
            _same(Turning(CSC).load(state).run().saved(), states[-1], f"step {state['steps']}")
