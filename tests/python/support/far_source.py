"""Fixtures for DataCache: a dataset that counts its reads by all processes, a node's memory, other jobs."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from roundelay.torch.data import job, memory_folder


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


@pytest.fixture
def node_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which caches meet; it must be empty in the end."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(memory_folder, "NODE_MEMORY", folder)
    yield folder
    gc.collect()
    assert not list(folder.iterdir())


@pytest.fixture
def source(tmp_path: Path) -> FarSource:
    return FarSource(tmp_path)


def another_job(monkeypatch: pytest.MonkeyPatch, name: str = "next", rank: int = 0) -> None:
    """Lets this process be of another job."""
    member = job.Member(name, "node", rank)
    monkeypatch.setattr(job, "this_process", lambda: member)
