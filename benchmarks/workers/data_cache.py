"""Epochs of a slow source: without a cache, the first and later ones with it, and from memory."""

from __future__ import annotations

import gc
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

import roundelay.torch as hvd
from benchmarks import measure
from roundelay.torch.data import DataCache, NodeSampler

_BATCH = 32


class Images(Dataset[Any]):
    """Made-up images, one byte a colour, and labels. `delay`: seconds of each read, 0: they are in memory."""

    def __init__(self, count: int, side: int, delay: float) -> None:
        generator = torch.Generator().manual_seed(1)
        self._images = [
            torch.randint(0, 256, (3, side, side), generator=generator, dtype=torch.uint8)
            for _ in range(count)
        ]
        self._delay = delay

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self._delay:
            time.sleep(self._delay)
            return self._images[index].clone(), index  # a decoder makes a new one
        return self._images[index], index


class Transformed(Dataset[Any]):
    """A dataset in memory with a transform."""

    def __init__(self, images: Dataset[Any], transform: Callable[[Any], Any] | None) -> None:
        self._images, self._transform = images, transform

    def __getitem__(self, index: int) -> Any:
        sample = self._images[index]
        return sample if self._transform is None else self._transform(sample)


def augment(sample: tuple[torch.Tensor, int]) -> tuple[torch.Tensor, int]:
    """Flip at random, and turn bytes into numbers around 0."""
    image, label = sample
    if torch.rand(()) < 0.5:
        image = image.flip(2)
    return image.to(torch.float32).sub_(127.5).div_(127.5), label


class Epochs:
    """Runs epochs of a dataset over this rank's part and its workers."""

    def __init__(self, ranks: measure.Ranks, spec: dict[str, Any]) -> None:
        self._ranks, self._workers = ranks, int(spec["workers"])
        self._count = int(spec["samples"])
        self._epoch = 0

    def loader(self, dataset: Any) -> DataLoader[Any]:
        """Return a loader whose workers start with its first epoch and stay."""
        nodes = [0] * self._ranks.size
        sampler = NodeSampler(range(self._count), nodes, self._ranks.rank)
        return DataLoader(
            dataset, _BATCH, sampler=sampler, num_workers=self._workers, persistent_workers=self._workers > 0
        )

    def run(self, loader: DataLoader[Any]) -> None:
        """Run an epoch."""
        self._epoch += 1
        loader.sampler.set_epoch(self._epoch)  # type: ignore[union-attr, attr-defined]
        labels = sum(len(labels) for _, labels in loader)
        assert labels == len(loader.sampler)  # type: ignore[arg-type]

    def first(self, make: Callable[[], Any]) -> float:
        """Time the first epoch with the start of the workers, and making the dataset."""
        self._ranks.meet()
        begin = time.perf_counter()
        dataset = make()
        loader = self.loader(dataset)
        self.run(loader)
        seconds = time.perf_counter() - begin
        del loader, dataset
        gc.collect()
        self._ranks.rest()
        return seconds

    def later(self, loader: DataLoader[Any]) -> float:
        """Time an epoch whose workers run already."""
        self._ranks.meet()
        return measure.timed(lambda: self.run(loader))


def mapped_bytes(processes: Sequence[int], folder: Path) -> dict[str, int]:
    """Return the memory of a folder's files in these processes: `share` counts pages in several once."""
    found = {"share": 0, "mapped": 0}
    for process in processes:
        text = Path(f"/proc/{process}/smaps").read_text()
        for part in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", text):
            if str(folder) in part.splitlines()[0]:
                numbers = dict(re.findall(r"^(\w+): +(\d+) kB", part, re.MULTILINE))
                found["share"] += int(numbers["Pss"]) * 1024
                found["mapped"] += int(numbers["Rss"]) * 1024
    return found


def _total(found: dict[str, int]) -> dict[str, int]:
    values = torch.tensor(list(found.values()))
    dist.all_reduce(values)
    return dict(zip(found, values.tolist(), strict=True))


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure the spec."""
    ranks = measure.Ranks(spec)
    hvd.init()
    epochs = Epochs(ranks, spec)
    count, side = int(spec["samples"]), int(spec["side"])
    far, near = Images(count, side, spec["delay"]), Images(count, side, 0.0)
    directory = tempfile.mkdtemp(dir=spec["folder"]) if spec["disk"] else None
    if directory is not None:
        directory = hvd.broadcast_object(directory, 0)

    def cached(transform: Callable[[Any], Any] | None) -> DataCache:
        return DataCache(far, directory, memory=0 if directory else "8 GiB", transform=transform)

    kept, plain = cached(augment), None
    loaders = {
        "later, with a cache": epochs.loader(kept),
        "later, from memory": epochs.loader(Transformed(near, augment)),
    }
    if directory is None:  # one cache a directory
        plain = cached(None)
        loaders["later, with a cache, no transform"] = epochs.loader(plain)
        loaders["later, from memory, no transform"] = epochs.loader(Transformed(near, None))
    for loader in loaders.values():
        epochs.run(loader)
        ranks.rest()
    turns: dict[str, measure.Turn] = {
        name: (lambda loader=loader: [epochs.later(loader)])  # type: ignore[misc]
        for name, loader in loaders.items()
    }
    if directory is None:
        turns["first, without a cache"] = lambda: [epochs.first(lambda: Transformed(far, augment))]
        turns["first, with a cache"] = lambda: [epochs.first(lambda: cached(augment))]
    found = measure.take_turns(turns, spec["repetitions"])
    processes = [os.getpid(), *_workers(loaders["later, with a cache"])]
    where = kept._cache._storage.disk or kept._cache._storage.folder
    memory = _total(mapped_bytes(processes, where))
    stats = kept.stats()
    level = stats.disk if directory else stats.memory
    ranks.rest()
    result = {
        "seconds": found.single(),
        "others": found.others,
        "memory": {**memory, "kept": level.kept_bytes, "samples": level.kept},
        "source_reads": stats.source.hits,
    }
    del loaders, turns, kept, plain
    gc.collect()
    hvd.shutdown()
    ranks.leave()
    return result


def _workers(loader: DataLoader[Any]) -> list[int]:
    """Return the ids of a loader's workers."""
    return [worker.pid for worker in getattr(loader._iterator, "_workers", [])]


if __name__ == "__main__":
    measure.worker(main)
