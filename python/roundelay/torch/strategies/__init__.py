"""Strategies of DistributedOptimizer: a strategy chooses each bucket's technique, and works around a step.

docs/strategies.md has the table of strategies, and how to write one.
"""

from __future__ import annotations

from roundelay.torch._internal.strategy.attached import of
from roundelay.torch._internal.strategy.bucket import Bucket, Part, Sent, Shape
from roundelay.torch._internal.strategy.context import Context
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch._internal.strategy.text import known, parse, register
from roundelay.torch.strategies._lossy.lossy import Lossy
from roundelay.torch.strategies.adasum import Adasum
from roundelay.torch.strategies.auto import Auto
from roundelay.torch.strategies.csc import CSC
from roundelay.torch.strategies.daso import DASO
from roundelay.torch.strategies.dense import Dense
from roundelay.torch.strategies.fixed import Fixed
from roundelay.torch.strategies.local_sgd import LocalSGD
from roundelay.torch.strategies.named import NAMED
from roundelay.torch.strategies.power_sgd import PowerSGD
from roundelay.torch.strategies.quantised import Quantised
from roundelay.torch.strategies.top_k import TopK

__all__ = [
    "CSC",
    "DASO",
    "Adasum",
    "Auto",
    "Bucket",
    "Context",
    "Dense",
    "Fixed",
    "LocalSGD",
    "Lossy",
    "Part",
    "PowerSGD",
    "Quantised",
    "Sent",
    "Shape",
    "Spec",
    "Strategy",
    "TopK",
    "known",
    "of",
    "parse",
]

register(NAMED, Fixed)
