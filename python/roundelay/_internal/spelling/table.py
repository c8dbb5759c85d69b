"""The table of strategies: their names, their parameters, what each loses, and what users may write instead.

Every text of a strategy is read by it (reading.py), and every list of strategies is made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

from roundelay._internal import launcher_module
from roundelay._internal.spelling.values import (
    WIRE,
    Algorithm,
    Bits,
    Factors,
    Flag,
    Kind,
    Names,
    NoMomentum,
    Period,
    Share,
    Strategies,
    WarmUp,
    Whole,
    Word,
)


class Loss(Enum):
    """What a strategy does to gradients on their way."""

    NONE = "lossless"  # each step applies the whole sum; its last bits depend on the order of addition
    ROUNDING = "rounding"  # each step applies the whole sum, which has travelled in a half type
    PARTS = "lossy"  # a step applies something else than the sum of all gradients


class Need(Enum):
    """How a text may leave a parameter out."""

    OPTIONAL = 0  # texts that are printed have it if it is not the default
    SHOWN = 1  # texts that are printed have it always
    REQUIRED = 2  # it has no default


@dataclass(frozen=True)
class Parameter:
    """A parameter of a strategy. default: its value where a text has none, as kind.read() returns it."""

    kind: Kind
    default: Any = None
    need: Need = Need.OPTIONAL
    meaning: str = ""  # of one that is required, for the error


@dataclass(frozen=True)
class Entry:
    """A strategy."""

    loss: Loss  # without a wire
    parameters: Mapping[str, Parameter]
    description: str


@cache
def allreduce_algorithms() -> tuple[str, ...]:
    """Returns the algorithms of a dense allreduce."""
    return launcher_module.algorithms()["allreduce"]


def _algorithm_words() -> tuple[str, ...]:
    return ("auto", *allreduce_algorithms())


_MOST = 1 << 62  # the core's limit of a seed
WIRED = Parameter(WIRE, "none")
_DENSE_ONES = {"dense_below": Parameter(Whole(), 4096), "dense_parameters": Parameter(Names(), ())}


def _lossy(share: str, default: float, own: Mapping[str, Parameter], momenta: tuple[str, ...]) -> Entry:
    """Returns a strategy that sends a share of the gradients. momenta: the first one is that for SGD."""
    what = {
        "keep": "the chunks of gradients with the largest norms are sent, keep=0.1 of them",
        "density": "nodes exchange the gradients of largest magnitude, density=0.01 of them",
    }
    parameters = {
        share: Parameter(Share(), default, Need.SHOWN),
        **own,
        "momentum": Parameter(Word(("auto", *momenta)), "auto"),
        "masking": Parameter(Flag(), True),
        "warmup": Parameter(WarmUp(share), ()),
        "wire": WIRED,
        **_DENSE_ONES,
    }
    return Entry(Loss.PARTS, parameters, f"{what[share]}; the rest is kept back")


STRATEGIES: Mapping[str, Entry] = {
    "dense": Entry(Loss.NONE, {"wire": WIRED}, "one allreduce for each bucket"),
    "adasum": Entry(
        Loss.PARTS, {"wire": WIRED}, "every rank takes its own step, and Adasum combines the steps"
    ),
    "auto": Entry(
        Loss.ROUNDING,  # with its own candidates; others may lose more
        {
            "candidates": Parameter(Strategies(), []),  # none: those of loss
            "trial_steps": Parameter(Whole(1), 5),
            "loss": Parameter(Word(tuple(loss.value for loss in Loss)), None),
        },
        "tries candidates=[dense,dense:wire=bf16] on the training itself for trial_steps=5 each, and keeps "
        "the fastest",
    ),
    "csc": _lossy(
        "keep",
        0.1,
        {
            "chunk_elements": Parameter(Whole(1, 1 << 31), 32768),  # a chunk is never larger than its bucket
            "norms": Parameter(Word(("same", "previous")), "same"),
        },
        ("masked", "local", "none"),
    ),
    "topk": _lossy(
        "density",
        0.01,
        {
            "select": Parameter(Word(("mstopk", "radix", "auto")), "mstopk"),
            "samplings": Parameter(Whole(1, 1 << 30), 20),
            "index_bits": Parameter(Bits((32, 16)), 32),
            "seed": Parameter(Whole(0, _MOST), 0),
        },
        ("local", "none"),
    ),
    "daso": Entry(
        Loss.PARTS,
        {
            "global_skip": Parameter(Whole(), 4, Need.SHOWN),
            "batches_to_wait": Parameter(Whole(), 1),
            "local_skip": Parameter(Whole(1), 1),
            "warmup_epochs": Parameter(Whole(), 4),
            "cooldown_epochs": Parameter(Whole(), 4),
            "total_epochs": Parameter(
                Whole(1), need=Need.REQUIRED, meaning="the number of epochs of the whole training"
            ),
            "batches_per_epoch": Parameter(Whole(1)),
            "blocking_wire": Parameter(WIRE, "bf16"),
            "merge_momentum": Parameter(Flag(), False),
        },
        "one rank of a node sends its parameters to other nodes every global_skip=4 batches of "
        "total_epochs=... epochs; they are merged batches_to_wait=1 batches later",
    ),
    "power_sgd": Entry(
        Loss.PARTS,
        {
            "rank": Parameter(Whole(1), 2, Need.SHOWN),
            "seed": Parameter(Whole(), 0),
            "momentum": Parameter(NoMomentum(), "none"),
            "warmup": Parameter(Whole(), 0),
            "wire": WIRED,
            **_DENSE_ONES,
        },
        "low-rank factors of the gradients' matrices are sent, rank=2; what they lack is kept back",
    ),
    "quantised": Entry(
        Loss.PARTS,
        {"bits": Parameter(Whole(8, 8), 8, Need.SHOWN)},
        "sums travel between nodes in bits=8, with a scale for each 256; the rest is kept back",
    ),
    "local_sgd": Entry(
        Loss.PARTS,
        {
            "period": Parameter(Period(1_000_000), ((0, 8),), Need.SHOWN),
            "post_local_after": Parameter(Whole(), 0),
            "within_node": Parameter(Word(("every_step", "period")), "every_step"),
        },
        "every rank takes its own steps, and parameters are averaged every period=8 steps",
    ),
    "allreduce": Entry(
        Loss.NONE,
        {
            "algorithm": Parameter(Algorithm(_algorithm_words), "auto"),
            "factors": Parameter(Factors(), ()),
            "wire": WIRED,
        },
        "one allreduce for each bucket by one algorithm=..., whatever the topology or a tuning file says",
    ),
}

# Each wire is a choice of its own in lists.
CHOICES: Mapping[str, str] = {
    choice: text
    for name, entry in STRATEGIES.items()
    for choice, text in (
        [(name, entry.description)]
        if name != "dense"
        else [
            (name, entry.description),
            *((f"dense:wire={wire}", f"the same, cast to {wire}") for wire in WIRE.words if wire != "none"),
        ]
    )
}

# Other names of strategies, and the parameters that they stand for.
Alias = tuple[str, Mapping[str, str]]
_ALIASES: Mapping[str, Alias] = {
    "bf16": ("dense", {"wire": "bf16"}),
    "fp16": ("dense", {"wire": "fp16"}),
    "half": ("dense", {"wire": "bf16"}),  # a wire that the text has wins
}


def alias_of(name: str) -> Alias | None:
    """Returns the strategy that another name stands for; None: the name is none of these.

    They are the wires' names, the technique half, algorithms of an allreduce (``ring``), and plans over
    levels (``2x4``).
    """
    if name in _ALIASES:
        return _ALIASES[name]
    factors = name.split("x")
    if factors[1:] and all(map(str.isdecimal, factors)):
        return "allreduce", {"factors": "+".join(factors)}
    if name in allreduce_algorithms():
        return "allreduce", {"algorithm": name}
    return None


def other_names() -> list[str]:
    """Returns the other names that are words."""
    return [*_ALIASES, *allreduce_algorithms()]


def parameters_of(strategy: str) -> Mapping[str, Parameter]:
    """Returns the parameters of a strategy; of a class of a user's: those that the base of lossy ones has."""
    if strategy in STRATEGIES:
        return STRATEGIES[strategy].parameters
    own = ("keep", "chunk_elements", "norms")
    return {key: one for key, one in STRATEGIES["csc"].parameters.items() if key not in own}


def kind_of(strategy: str, key: str) -> Any:
    """Returns the kind of a parameter's values."""
    return STRATEGIES[strategy].parameters[key].kind


def momenta_of(name: str) -> tuple[str, ...]:
    """Returns what a strategy may do about momentum; without a choice the first is for SGD."""
    momenta: tuple[str, ...] = kind_of(name, "momentum").words[1:]
    return momenta
