"""Training that is saved and resumed: small models, gradients that are no whole numbers, several buckets."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import roundelay.torch as hvd
from random_values import normal
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from roundelay.torch._internal.optimizer.gradient_sync import GradientSync
from roundelay.torch._internal.optimizer.pool_plan import PoolPlan

CSC = "csc:keep=0.3,chunk_elements=4,dense_below=6"
TOPK = "topk:density=0.2,dense_below=6"
POWER_SGD = "power_sgd:rank=1,dense_below=6"
STEPS = 16
ENV = {"ROUNDELAY_THETA": "256"}  # several buckets


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def nesterov(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.05)


class Training:
    """A model whose data depend on the rank and the step only. clip, passes, cycle, scale: what is used."""

    def __init__(
        self,
        strategy: Any,
        make: Callable[[Any], torch.optim.Optimizer] = sgd,
        clip: bool = False,
        passes: int = 1,
        cycle: bool = False,
        scale: bool = False,
        dtype: torch.dtype = torch.float32,
        compression: Any = hvd.Compression.none,
        process_set: hvd.ProcessSet = hvd.global_process_set,
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
            process_set=process_set,
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
            data = normal(torch.Generator("cpu").manual_seed(seed), 4, 12).to(self.dtype)
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

    def sync(self) -> GradientSync:
        wrapper = wrapper_of(self.optimizer)
        assert wrapper is not None
        assert wrapper.gradient_hooks.sync is not None
        return wrapper.gradient_hooks.sync

    def plan(self) -> PoolPlan:
        return self.sync()._plan

    def check_has_kept(self) -> None:
        """Its buckets keep gradients back, unless all that the strategy may choose is dense."""
        if self.strategy.text.startswith(("dense", "auto")):
            return
        state = self.saved()["strategy"]
        assert any(bucket["unflushed"] and bucket["run"] > 0 for bucket in state["buckets"].values())


def same(this: Any, that: Any, where: str = "") -> None:
    assert type(this) is type(that), where
    if isinstance(this, torch.Tensor):
        assert torch.equal(this, that), where
    elif isinstance(this, dict):
        assert this.keys() == that.keys(), where
        for key in this:
            same(this[key], that[key], f"{where}.{key}")
    elif isinstance(this, list | tuple):
        assert len(this) == len(that), where
        for number, pair in enumerate(zip(this, that, strict=True)):
            same(*pair, f"{where}.{number}")
    else:
        assert this == that, where


EVERYTHING = {"clip": True, "passes": 2, "cycle": True}
RUNS: list[tuple[str, dict[str, Any]]] = [
    (CSC, {}),
    (CSC, EVERYTHING),
    (f"{CSC},momentum=local", {"make": nesterov, **EVERYTHING}),
    (f"{CSC},momentum=none", {"make": adamw, **EVERYTHING}),
    (f"{CSC},norms=previous", {"clip": True, "cycle": True}),
    (f"{CSC},norms=previous,momentum=none", {"make": adamw}),
    (f"{CSC},warmup=10", {"scale": True}),
    (f"{CSC},momentum=none", {"make": adamw, "scale": True, "clip": True}),
    (f"{CSC},wire=bf16", {"dtype": torch.bfloat16}),
    (CSC, {"compression": hvd.Compression.fp16}),
    (TOPK, EVERYTHING),
    (f"{TOPK},momentum=none", {"make": adamw, **EVERYTHING}),
    (POWER_SGD, EVERYTHING),
    (POWER_SGD, {"make": adamw, **EVERYTHING}),
    ("dense", EVERYTHING),
]
