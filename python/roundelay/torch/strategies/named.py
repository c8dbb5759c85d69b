"""The strategies that have a name, which text and options know them by."""

from __future__ import annotations

from roundelay.torch._internal.strategy.text import Named
from roundelay.torch.strategies import auto, csc, daso, local_sgd, power_sgd, top_k
from roundelay.torch.strategies._daso.settings import KEYS as DASO_KEYS
from roundelay.torch.strategies.adasum import Adasum
from roundelay.torch.strategies.dense import Dense

NAMED = {
    "dense": Named(Dense, ("wire",), "one allreduce for each bucket; wire=fp16 or bf16: cast to that type"),
    "adasum": Named(Adasum, ("wire",), "every rank takes its own step, and Adasum combines the steps"),
    "auto": Named(
        auto.Auto.from_text,
        auto.KEYS,
        "tries candidates=dense+bf16 on the training itself for trial_steps=5 each, and keeps the fastest",
    ),
    "csc": Named(
        csc.CSC.from_text,
        csc.KEYS,
        "the chunks of gradients with the largest norms are sent, keep=0.1 of them; the rest is kept back",
    ),
    "topk": Named(
        top_k.TopK.from_text,
        top_k.KEYS,
        "nodes exchange the gradients of largest magnitude, density=0.01 of them; the rest is kept back",
    ),
    "daso": Named(
        daso.DASO.from_text,
        DASO_KEYS,
        "one rank of a node sends its parameters to other nodes every global_skip=4 batches of "
        "total_epochs=... epochs; they are merged batches_to_wait=1 batches later",
    ),
    "power_sgd": Named(
        power_sgd.PowerSGD.from_text,
        power_sgd.KEYS,
        "low-rank factors of the gradients' matrices are sent, rank=2; what they lack is kept back",
    ),
    "local_sgd": Named(
        local_sgd.LocalSGD.from_text,
        local_sgd.KEYS,
        "every rank takes its own steps, and parameters are averaged every period=8 steps",
    ),
}
