"""The settings of wrapped optimizers: clients read them as attributes, and a second wrapping keeps them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from roundelay.torch._internal.operations.common import OP_NAMES

PASSES = "backward_passes_per_step"
# These change results.
_COMPARED = ("op", PASSES, "gradient_predivide_factor", "process_set", "_compression")
Settings = Mapping[str, Any]  # by Horovod's attribute


class _Known(NamedTuple):
    job: int
    settings: dict[str, Any]
    attributes: list[str]  # those of the optimizer that are ours


_known: weakref.WeakKeyDictionary[torch.optim.Optimizer, _Known] = weakref.WeakKeyDictionary()


def check_again(optimizer: torch.optim.Optimizer, settings: Settings, job: int) -> None:
    """Raises ValueError if the optimizer is wrapped in this job with other settings: they would be lost."""
    known = _known.get(optimizer)
    if known is None or known.job != job:
        return
    for name in _COMPARED:
        before, value = known.settings[name], settings[name]
        if before is not value and before != value:
            argument = name.removeprefix("_")
            was, now = _shown(name, before), _shown(name, value)
            raise ValueError(
                f"this {type(optimizer).__name__} is wrapped already, with {argument}={was}, and a second "
                f"DistributedOptimizer has {argument}={now}: wrap once (a library may do it for you), or "
                "give both the same arguments"
            )


def show(optimizer: torch.optim.Optimizer, settings: Settings, job: int) -> None:
    """Gives the optimizer the settings as attributes; those that it has by itself stay."""
    own = [name for name in settings if not hasattr(optimizer, name)]
    _known[optimizer] = _Known(job, dict(settings), own)
    for name in own:
        setattr(optimizer, name, settings[name])


def known_settings(optimizer: torch.optim.Optimizer) -> Settings:
    """Returns the settings of a wrapped optimizer."""
    return _known[optimizer].settings


def note_passes(optimizer: torch.optim.Optimizer | None, passes: int) -> None:
    """Records that backward_passes_per_step has changed."""
    known = None if optimizer is None else _known.get(optimizer)
    if known is not None:
        known.settings[PASSES] = passes
        if PASSES in known.attributes:
            setattr(optimizer, PASSES, passes)


def hide(optimizer: torch.optim.Optimizer) -> None:
    """Takes the attributes away."""
    known = _known.pop(optimizer, None)
    for name in known.attributes if known is not None else ():
        optimizer.__dict__.pop(name, None)


def _shown(name: str, value: Any) -> str:
    return OP_NAMES[value] if name == "op" else getattr(value, "__name__", repr(value))
