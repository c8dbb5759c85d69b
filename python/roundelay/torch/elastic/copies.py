"""Copies of states: nestings of dicts, lists and tuples with tensors in them."""

from __future__ import annotations

import copy
from typing import Any

import torch


def copied(value: Any, into: Any = None) -> Any:
    """Returns a copy of a state. Tensors are copied into those of `into`, an earlier copy, where they fit."""
    if isinstance(value, torch.Tensor):
        return _copied_tensor(value, into)
    if isinstance(value, dict):
        earlier = into if isinstance(into, dict) else {}
        result = copy.copy(value)  # with the attributes of a model's OrderedDict
        for key, one in value.items():
            result[key] = copied(one, earlier.get(key))
        return result
    if type(value) in (list, tuple):
        befores = into if type(into) is type(value) and len(into) == len(value) else [None] * len(value)
        return type(value)(copied(one, before) for one, before in zip(value, befores, strict=True))
    return copy.deepcopy(value)


def _copied_tensor(value: torch.Tensor, into: Any) -> torch.Tensor:
    fits = (
        isinstance(into, torch.Tensor)
        and (into.shape, into.dtype, into.device, into.layout)
        == (value.shape, value.dtype, value.device, value.layout)
        and value.layout is torch.strided
    )
    return into.copy_(value.detach()) if fits else value.detach().clone()
