"""The classes of the strategies that texts name. _internal/spelling/table.py has their parameters."""

from __future__ import annotations

from roundelay.torch.strategies.adasum import Adasum
from roundelay.torch.strategies.auto import Auto
from roundelay.torch.strategies.csc import CSC
from roundelay.torch.strategies.daso import DASO
from roundelay.torch.strategies.dense import Dense
from roundelay.torch.strategies.local_sgd import LocalSGD
from roundelay.torch.strategies.power_sgd import PowerSGD
from roundelay.torch.strategies.quantised import Quantised
from roundelay.torch.strategies.top_k import TopK

NAMED = {
    "dense": Dense,
    "adasum": Adasum,
    "auto": Auto,
    "csc": CSC,
    "topk": TopK,
    "daso": DASO,
    "power_sgd": PowerSGD,
    "quantised": Quantised,
    "local_sgd": LocalSGD,
}
