"""Strategies written as text, as ROUNDELAY_STRATEGY and ``--strategy`` have them: ``dense:wire=bf16``."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from roundelay.torch.strategies.adasum import Adasum
from roundelay.torch.strategies.auto import KEYS as AUTO_KEYS
from roundelay.torch.strategies.auto import Auto
from roundelay.torch.strategies.csc import CSC
from roundelay.torch.strategies.csc import KEYS as CSC_KEYS
from roundelay.torch.strategies.daso import DASO
from roundelay.torch.strategies.daso import KEYS as DASO_KEYS
from roundelay.torch.strategies.dense import Dense
from roundelay.torch.strategies.fixed import Fixed
from roundelay.torch.strategies.local_sgd import KEYS as LOCAL_SGD_KEYS
from roundelay.torch.strategies.local_sgd import LocalSGD
from roundelay.torch.strategies.power_sgd import KEYS as POWER_SGD_KEYS
from roundelay.torch.strategies.power_sgd import PowerSGD
from roundelay.torch.strategies.protocol import Spec, Strategy, techniques
from roundelay.torch.strategies.top_k import KEYS as TOP_K_KEYS
from roundelay.torch.strategies.top_k import TopK


class _Known(NamedTuple):
    """A strategy that has a name."""

    make: Callable[..., Strategy]  # takes the parameters' texts as keywords
    keys: tuple[str, ...]
    description: str


_KNOWN = {
    "dense": _Known(Dense, ("wire",), "one allreduce for each bucket; wire=fp16 or bf16: cast to that type"),
    "adasum": _Known(Adasum, ("wire",), "every rank takes its own step, and Adasum combines the steps"),
    "auto": _Known(
        Auto.from_text,
        AUTO_KEYS,
        "tries candidates=dense+bf16 on the training itself for trial_steps=5 each, and keeps the fastest",
    ),
    "csc": _Known(
        CSC.from_text,
        CSC_KEYS,
        "the chunks of gradients with the largest norms are sent, keep=0.1 of them; the rest is kept back",
    ),
    "topk": _Known(
        TopK.from_text,
        TOP_K_KEYS,
        "nodes exchange the gradients of largest magnitude, density=0.01 of them; the rest is kept back",
    ),
    "daso": _Known(
        DASO.from_text,
        DASO_KEYS,
        "one rank of a node sends its parameters to other nodes every global_skip=4 batches of "
        "total_epochs=... epochs; they are merged batches_to_wait=1 batches later",
    ),
    "power_sgd": _Known(
        PowerSGD.from_text,
        POWER_SGD_KEYS,
        "low-rank factors of the gradients' matrices are sent, rank=2; what they lack is kept back",
    ),
    "local_sgd": _Known(
        LocalSGD.from_text,
        LOCAL_SGD_KEYS,
        "every rank takes its own steps, and parameters are averaged every period=8 steps",
    ),
}


def known() -> dict[str, str]:
    """Returns the descriptions of all strategies, by name; each technique of the core is one.

    A strategy hides the technique of its name.
    """
    named = {name: each.description for name, each in _KNOWN.items()}
    return {**named, **{name: text for name, text in techniques().items() if name not in named}}


def parse(text: str) -> Strategy:
    """Returns the strategy that the text means.

    ValueError: it has another form, names no known strategy, or has a wrong parameter.
    """
    spec = Spec.parse(text)
    parameters = dict(spec.parameters)
    entry = _KNOWN.get(spec.name)
    if entry is not None:
        unknown = next((key for key in parameters if key not in entry.keys), None)
        if unknown is not None:
            raise ValueError(f"strategy {spec.name!r} has no {unknown!r}, only {', '.join(entry.keys)}")
        return entry.make(**parameters)
    if spec.name not in techniques():
        raise ValueError(f"there is no strategy {spec.name!r}; known are {', '.join(known())}")
    wire = parameters.pop("wire", None)
    return Fixed(Spec(spec.name, **parameters), wire)
