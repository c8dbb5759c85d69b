"""Strategies as a user writes them: in a file of his own, against the documented base class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import roundelay.torch as hvd


class Choosing(hvd.strategies.Strategy):
    """Takes the technique that a function gives for a bucket and a step; notes its calls."""

    def __init__(self, choice: Callable[[hvd.strategies.Bucket, int], str | None]) -> None:
        self.choice = choice
        self.wish: bytes | None = None
        self.heard: list[tuple[int, bytes]] = []
        self.calls: list[str] = []
        self.seen: dict[int, hvd.strategies.Bucket] = {}
        self.steps = 0

    def technique(self, bucket: hvd.strategies.Bucket, step: int) -> hvd.strategies.Spec | None:
        self.seen[bucket.index] = bucket
        text = self.choice(bucket, step)
        return None if text is None else hvd.strategies.Spec.parse(text)

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.calls.append("before")

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.steps += 1
        self.calls.append("after")

    def propose(self) -> bytes | None:
        return self.wish

    def agreed(self, proposal: bytes) -> None:
        self.wish = None
        self.heard.append((self.steps, proposal))

    def layout_will_change(self) -> None:
        self.calls.append("layout")

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "own": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["own"]
        super().load_state_dict(state)
