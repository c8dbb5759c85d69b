"""A dataset that counts how often each sample is read, by all processes together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset


class FarSource(Dataset[Any]):
    """Sample i is (a tensor of `numbers` times i, plus `state`; the label i)."""

    def __init__(self, folder: Path, length: int = 24, numbers: int = 300, state: int = 0) -> None:
        self.log, self.length, self.numbers, self.state = folder / "reads", length, numbers, state

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        with self.log.open("ab") as file:
            file.write(index.to_bytes(4, "big"))
        return self.sample(index)

    def sample(self, index: int) -> Any:
        """What a read returns."""
        return torch.full((self.numbers,), float(index + self.state)), index

    def take_reads(self) -> Counter[int]:
        """How often each sample was read since the last call."""
        data = self.log.read_bytes() if self.log.exists() else b""
        self.log.unlink(missing_ok=True)
        return Counter(int.from_bytes(data[i : i + 4], "big") for i in range(0, len(data), 4))


def check(samples: Any, source: FarSource, indices: Any = None) -> None:
    """Fails unless the samples are those of the indices, or all in order."""
    indices = range(len(source)) if indices is None else indices
    for (tensor, label), index in zip(samples, indices, strict=True):
        expected, number = source.sample(index)
        assert label == number
        assert torch.equal(tensor, expected), index
