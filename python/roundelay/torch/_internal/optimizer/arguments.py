"""Checks DistributedOptimizer's arguments; raises ValueError before anything is changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from roundelay import _core
from roundelay.torch._internal.operations import LINEAR_OPS, Adasum, Average, checked_op
from roundelay.torch._internal.operations.common import OP_NAMES
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch._internal.strategy.text import parse
from roundelay.torch._internal.strategy.wires import checked_wire
from roundelay.torch.compression import Compression, Compressor

_COMPRESSORS: dict[torch.dtype, type[Compressor]] = {
    torch.float16: Compression.fp16,
    torch.bfloat16: Compression.bf16,
}


def check_optimizer(optimizer: Any) -> None:
    """Raises ValueError if it is no optimizer."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"a torch.optim.Optimizer is needed, not {type(optimizer).__name__}")


def check_passes(passes: Any) -> None:
    """Raises ValueError for a bad backward_passes_per_step."""
    if not isinstance(passes, int) or passes < 1:
        raise ValueError(f"backward_passes_per_step is {passes!r}, but must be a whole number from 1 on")


def checked_reduction(op: int, factor: float) -> tuple[int, float]:
    """Returns the operation and gradient_predivide_factor."""
    if op != Adasum:
        op = checked_op(op, None)
    if not isinstance(factor, int | float) or not 0 < factor < math.inf:
        raise ValueError(f"gradient_predivide_factor is {factor!r}, but must be a number above 0")
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    return op, float(factor)


def chosen_strategy(
    strategy: Any, compression: type[Compressor], op: int
) -> tuple[Strategy, type[Compressor]]:
    """Returns the strategy and the form in which gradients travel.

    Arguments win over ROUNDELAY_STRATEGY. ValueError: the strategy is none, or there is no such one; or both
    ``compression`` and the strategy say how gradients travel, and differ.
    """
    default = _core.config().strategy
    if strategy is None and op != Adasum and default:
        chosen = _from_variable(default)
        wire = chosen.wire if compression is Compression.none else None
    elif strategy is None:
        chosen, wire = parse("adasum" if op == Adasum else "dense"), None
    else:
        chosen = parse(strategy) if isinstance(strategy, str) else strategy
        if not isinstance(chosen, Strategy):
            raise ValueError(f"strategy is {strategy!r}, but must be a hvd.strategies.Strategy or text")
        wire = checked_wire(chosen.wire)
    if wire is None:
        return chosen, compression
    if compression not in (Compression.none, _COMPRESSORS[wire]):
        raise ValueError(
            f"compression is {compression!r}, but strategy {chosen.text} sends {wire}: give only one of them"
        )
    return chosen, _COMPRESSORS[wire]


def check_complex(
    named: Mapping[torch.Tensor, str], strategy: Strategy, compression: type[Compressor], op: int
) -> None:
    """Raises ValueError if a parameter is complex, and its gradient cannot be reduced in this way."""
    name = next((name for parameter, name in named.items() if parameter.is_complex()), None)
    if name is None:
        return
    if not strategy.takes_complex:
        way = f"strategy {strategy.text}"
    elif op not in LINEAR_OPS:
        way = f"op=hvd.{OP_NAMES[op]}"
    elif compression in _COMPRESSORS.values():
        way = "a half type, in which gradients would travel,"
    else:
        return
    raise ValueError(
        f"parameter {name!r} is complex, which {way} cannot take: give complex parameters to an optimizer of "
        "their own, with strategy='dense', op=hvd.Average or hvd.Sum, and without compression"
    )


def _from_variable(text: str) -> Strategy:
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f'ROUNDELAY_STRATEGY="{text}" is not valid: {error}') from None


def check_variable() -> None:
    """Raises ValueError if init() would read a ROUNDELAY_STRATEGY that is no strategy."""
    text = _core.load_config().strategy
    if text:
        _from_variable(text)


def checked_names(
    groups: list[list[torch.Tensor]], named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> MutableMapping[torch.Tensor, str]:
    """Returns names by parameter: for all parameters in the groups, or none if none are given.

    It keeps no parameter alive.
    """
    by_parameter: MutableMapping[torch.Tensor, str] = WeakIdKeyDictionary()
    if named_parameters is None:
        return by_parameter
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise ValueError("named_parameters must be (name, parameter) pairs, such as model.named_parameters()")
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"named_parameters has names more than once: {', '.join(twice)}")
    by_parameter.update((parameter, name) for name, parameter in pairs)
    unnamed = [
        f"group {number}, number {index}, shape {tuple(parameter.shape)}"
        for number, group in enumerate(groups)
        for index, parameter in enumerate(group)
        if parameter not in by_parameter
    ]
    if unnamed and not pairs:
        raise ValueError("named_parameters is empty (is it a generator that was used before?)")
    if unnamed:
        raise ValueError(
            f"named_parameters lacks {len(unnamed)} of the optimizer's {sum(map(len, groups))} "
            f"parameters; the first: {unnamed[0]}: give the names of the model that the optimizer trains"
        )
    return by_parameter


def prefix_of(scope: int) -> str:
    """Returns what the names of an optimizer's gradients begin with; scope: its number in its process set."""
    return "gradient" if scope == 0 else f"gradient{scope}"
