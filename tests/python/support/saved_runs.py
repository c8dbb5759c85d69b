"""Short trainings, saved as users save them, so that later commits can go on with what an earlier one wrote.

It uses public names only, and runs with the package of any commit from ec962a46 on. The command is in
tests/python/data/README.md.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import roundelay.torch as hvd
from random_values import normal

SAVED_AFTER, STEPS = 8, 12  # a pool is in use from the third or fourth step on
THETA = {"ROUNDELAY_THETA": "128"}  # two buckets
Make = Callable[[Any], torch.optim.Optimizer]
State = dict[str, Any]


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def decaying(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.05)


def outer(tensors: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(tensors, lr=0.7, momentum=0.9, nesterov=True)


@dataclass(frozen=True)
class Kind:
    """A way to train. keeps: the strategy's state matters, so that it is saved and loaded."""

    make: Make
    strategy: Callable[[], Any] = lambda: None
    keeps: bool = True
    dtype: torch.dtype = torch.float32
    scaled: bool = False
    nodes: bool = False  # each rank takes itself for a node


def _text(text: str) -> Callable[[], str]:
    return lambda: text


def _auto() -> hvd.strategies.Strategy:
    """Times choose between two candidates whose results have the same bits."""
    csc = hvd.strategies.CSC(keep=1.0, chunk_elements=4, momentum=None)
    return hvd.strategies.Auto(("dense", csc))


_CSC, _FEW = "csc:keep=0.3,chunk_elements=4,dense_below=6", "dense_below=6"
KINDS = {
    "sgd": Kind(decaying, keeps=False),
    "adamw": Kind(adamw, keeps=False),
    "masters": Kind(adamw, keeps=False, dtype=torch.bfloat16),
    "masters sgd": Kind(sgd, keeps=False, dtype=torch.float16, scaled=True),
    "csc": Kind(sgd, _text(_CSC)),
    "csc local": Kind(sgd, _text(f"{_CSC},momentum=local")),
    "csc previous": Kind(adamw, _text(f"{_CSC},norms=previous,momentum=none"), scaled=True),
    "csc masters": Kind(sgd, _text(f"{_CSC},wire=bf16"), dtype=torch.bfloat16),
    "topk": Kind(sgd, _text(f"topk:density=0.2,{_FEW}")),
    "power_sgd": Kind(adamw, _text(f"power_sgd:rank=1,{_FEW}")),
    "quantised": Kind(adamw, _text("quantised:bits=8"), nodes=True),
    "auto": Kind(adamw, _auto),
    "local_sgd": Kind(adamw, _text("local_sgd:period=3,within_node=period")),
    "local_sgd outer": Kind(
        sgd, lambda: hvd.strategies.LocalSGD(period=3, outer=outer, within_node="period")
    ),
    "daso": Kind(sgd, lambda: hvd.strategies.DASO(3, 2, 1, total_epochs=9, warmup_epochs=0), nodes=True),
}


class Run:
    """A training of a small model. Its data depend on the rank and the step only."""

    def __init__(self, kind: Kind) -> None:
        torch.manual_seed(5)
        self.kind = kind
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).to(kind.dtype)
        self.optimizer: Any = hvd.DistributedOptimizer(
            kind.make(self.model.parameters()),
            self.model.named_parameters(),
            strategy=kind.strategy(),
            master_weights=kind.dtype != torch.float32,
        )
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3, enabled=kind.scaled)
        self.steps = 0

    def step(self) -> float:
        """Takes a step and returns its loss on this rank."""
        chance = torch.Generator("cpu").manual_seed(10 * self.steps + hvd.rank())
        data = normal(chance, 4, 6).to(self.kind.dtype)
        self.optimizer.zero_grad()
        loss = self.model(data).float().square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.steps += 1
        return float(loss.detach())

    def saved(self) -> State:
        """Returns what users save after each step, on each rank."""
        state = {
            "steps": self.steps,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }
        if self.kind.keeps:
            state["strategy"] = hvd.strategies.of(self.optimizer).state_dict()
        return state

    def load(self, state: State, but: tuple[str, ...] = ()) -> Run:
        """Takes back what saved() returned, the strategy's state last. but: parts that stay as they are."""
        strategy = hvd.strategies.of(self.optimizer)
        parts = {"model": self.model, "optimizer": self.optimizer, "scaler": self.scaler}
        for name, part in {**parts, "strategy": strategy}.items():
            if name in state and name not in but:
                part.load_state_dict(copy.deepcopy(state[name]))  # steps would change the caller's tensors
        self.steps = state["steps"]
        return self

    def end(self) -> State:
        """Takes the other steps. Returns their losses, and what the optimizer's groups have then."""
        losses = [self.step() for _ in range(self.steps, STEPS)]
        stepped = [one.detach() for group in self.optimizer.param_groups for one in group["params"]]
        return {"losses": losses, "parameters": torch.cat([one.flatten() for one in stepped])}


@contextmanager
def job_of(kind: Kind) -> Iterator[None]:
    """Makes the job that the kind needs: this one, or another with each rank on a node of its own."""
    if not kind.nodes:
        yield
        return
    rank = hvd.rank()
    hvd.shutdown()
    os.environ["ROUNDELAY_NODE_ID"] = str(rank)
    hvd.init()
    try:
        yield
        hvd.barrier()  # a rank that leaves ends what others have on the wire
    finally:
        hvd.shutdown()
        del os.environ["ROUNDELAY_NODE_ID"]
        hvd.init()


def main(name: str) -> None:
    """Writes NAME-RANK.pt: each kind's state after some steps, and how it went on."""
    torch.set_num_threads(1)
    os.environ.update(THETA)
    hvd.init()
    found = {}
    for key, kind in KINDS.items():
        with job_of(kind):
            run = Run(kind)
            while run.steps < SAVED_AFTER:
                run.step()
            torch.save(run.saved(), path := Path(f"{name}-{hvd.rank()}.pt"))  # a copy: steps change it
            found[key] = {"state": torch.load(path, weights_only=True), "end": run.end()}
            del run
    torch.save(found, path)


if __name__ == "__main__":
    main(sys.argv[1])
