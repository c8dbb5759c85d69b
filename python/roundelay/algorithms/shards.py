"""Divides data into shards. Their number depends on the data, and never on the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import TensorDataset

from roundelay.algorithms.trees import rebuilt

MOST = 64  # shards, unless the call says another number


class Shards:
    """Indexable data, divided evenly: shard i has the items from ``i * items // count`` on."""

    def __init__(self, data: Any, count: int | None, device: torch.device) -> None:
        """ValueError if the data has no length or no items, or if ``count`` does not fit it."""
        if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")) or isinstance(data, dict | set):
            raise ValueError(
                f"data must have a length and items at 0, 1, 2 ..., as a tensor, a list or a dataset has; "
                f"{type(data).__name__} has not"
            )
        self.items = len(data)
        if self.items == 0:
            raise ValueError("data has no items: there is nothing to evaluate")
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise ValueError(f"shards is {count!r}, but must be a whole number from 1 on")
        if count is not None and count > self.items:
            raise ValueError(f"shards is {count}, but data has {self.items} items: each shard needs one")
        self.count = min(MOST, self.items) if count is None else count
        self._read = _reader(data)
        self._device = device

    def __getitem__(self, shard: int) -> Any:
        begin, end = (number * self.items // self.count for number in (shard, shard + 1))
        content = self._read(begin, end)
        return content if self._device.type == "cpu" else rebuilt(content, self._moved)

    def _moved(self, _: str, leaf: Any) -> Any:
        return leaf.to(self._device) if isinstance(leaf, torch.Tensor) else leaf


def _reader(data: Any) -> Callable[[int, int], Any]:
    """Returns the function that reads the items from begin up to end.

    Sequences, tensors, arrays and TensorDatasets are sliced; other data gives a list of items.
    """
    is_array = hasattr(data, "__array__") and hasattr(data, "shape")
    if is_array or isinstance(data, Sequence | torch.Tensor | TensorDataset):
        return lambda begin, end: data[begin:end]
    several = getattr(data, "__getitems__", None)  # datasets that read a batch at once have it
    if several is not None:
        return lambda begin, end: several(list(range(begin, end)))
    return lambda begin, end: [data[index] for index in range(begin, end)]
