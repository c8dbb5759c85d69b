"""Reads samples from node memory, from the node's disk, or from the source, and keeps the last ones."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roundelay.torch.data import codec
from roundelay.torch.data.counters import DISK, MEMORY, SOURCE, CacheStats, Counters
from roundelay.torch.data.locks import held
from roundelay.torch.data.memory_folder import objection
from roundelay.torch.data.store import MISSING, NoRoomError, Store, StoreError, store_at

_WRITER_LIMIT_S = 5.0  # a write takes less than a millisecond


@dataclass(frozen=True)
class Storage:
    """The storage of a node's cache."""

    folder: Path  # a folder in node memory
    memory: int  # the most bytes of samples in it
    disk: Path | None  # a folder on disk; None: samples are kept in memory only


class NodeCache:
    """One process's access to the node's cache. It can be pickled, and used in forked children."""

    def __init__(self, storage: Storage, name: str) -> None:
        """Opens nothing yet. name: the source's, for messages."""
        self._storage, self._name = storage, name
        self._folder, self._objection = str(storage.folder), str(objection(storage.folder))
        self._stores: dict[int, Store] = {}
        if storage.memory:
            self._stores[MEMORY] = store_at(storage.folder / "memory", storage.memory)
        if storage.disk is not None:
            self._stores[DISK] = store_at(storage.disk, None)
        self._counters = Counters(storage.folder / "counters")
        self._full: set[int] = set()  # levels to which this process writes no more
        self._broken: set[int] = set()  # levels that it does not read either

    def __getstate__(self) -> tuple[Storage, str]:
        return self._storage, self._name

    def __setstate__(self, state: tuple[Storage, str]) -> None:
        NodeCache.__init__(self, *state)

    def read(self, indices: Sequence[int], source: Callable[[list[int]], Sequence[Any]]) -> list[Any]:
        """Returns the samples of the indices, which are in range, in their order.

        source: reads samples that no level has. All samples have passed the codec, so that those of the
        first epoch do not differ from later ones. Raises TypeError for a sample that cannot be pickled,
        RuntimeError if the cache is gone, ValueError if the node's ranks disagree.
        """
        self._check()
        samples: list[Any] = [MISSING] * len(indices)
        missing = list(range(len(indices)))
        for level in self._stores:
            if missing and level not in self._broken:
                self._look_up(level, indices, missing, samples)
                missing = [position for position in missing if samples[position] is MISSING]
        if missing:
            begin, size = time.monotonic_ns(), 0
            wanted = [indices[position] for position in missing]
            read = source(wanted)
            records = [self.encode(index, one) for index, one in zip(wanted, read, strict=True)]
            for position, index, record in zip(missing, wanted, records, strict=True):
                samples[position] = codec.decode(memoryview(record))
                size += len(record)
                self.keep(index, record)
            self._counters.add(SOURCE, len(wanted), size, time.monotonic_ns() - begin)
        return samples

    def _check(self) -> None:
        # Each read comes here: os.path is several times as fast as pathlib.
        if os.path.exists(self._objection):
            raise ValueError(Path(self._objection).read_text())
        if not os.path.exists(self._folder):
            raise RuntimeError(
                f"this DataCache of {self._name} is gone ({self._folder}): the process that made it has "
                "ended, or runs on another node; every rank makes its own"
            )

    def _look_up(self, level: int, indices: Sequence[int], positions: list[int], samples: list[Any]) -> None:
        begin, size = time.monotonic_ns(), 0

        def take(record: memoryview) -> Any:
            nonlocal size
            size += len(record)
            return codec.decode(record)

        try:
            found = self._stores[level].read([indices[position] for position in positions], take)
        except StoreError as error:
            self._broken.add(level)
            self._full.add(level)
            warnings.warn(
                f"DataCache: this process reads no more from {self._name}'s cache in "
                f"{('node memory', 'the disk')[level]}: {error}",
                RuntimeWarning,
                stacklevel=5,
            )
            return
        hits = 0
        for position, sample in zip(positions, found, strict=True):
            if sample is not MISSING:
                samples[position] = sample
                hits += 1
        if hits:
            self._counters.add(level, hits, size, time.monotonic_ns() - begin)

    def encode(self, index: int, sample: Any) -> bytes:
        """Returns the record of a sample. Raises TypeError that names its index and type."""
        return codec.encode(sample, f"DataCache: sample {index} of {self._name}")

    def keep(self, index: int, record: bytes) -> None:
        """Keeps a sample in the first level that has room, unless a level has it already.

        When no level has room, it warns once on the node, and the job goes on.
        """
        levels = [level for level in self._stores if level not in self._full]
        if not levels:
            return
        writer = self._storage.folder / "writer"
        why = ""
        try:
            writer.touch()
            with held(writer, _WRITER_LIMIT_S):
                if any(self._has(level, index) for level in self._stores if level not in self._broken):
                    return
                for level in levels:
                    try:
                        self._stores[level].put(index, record)
                        return
                    except (NoRoomError, StoreError) as error:
                        self._full.add(level)
                        why = str(error)
        except (OSError, StoreError) as error:  # a TimeoutError is an OSError
            self._full.update(levels)
            why = str(error)
        self.warn_once(why)

    def _has(self, level: int, index: int) -> bool:
        return self._stores[level].read([index], bool)[0] is not MISSING

    def warn_once(self, why: str) -> None:
        """Warns that samples are not kept, unless a process of the node has done so. why: the reason."""
        try:
            os.close(os.open(self._storage.folder / "full", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return  # another process has warned
        except OSError:
            pass  # node memory cannot have the file: each process warns
        warnings.warn(
            f"DataCache: the cache of {self._name} is full ({why}); samples that it does not have come from "
            "the source in every epoch",
            RuntimeWarning,
            stacklevel=6,
        )

    def stats(self) -> CacheStats:
        """Returns the node's counts, and the numbers and bytes of the samples that the levels keep."""
        totals = self._counters.totals()
        for level, store in self._stores.items():
            if level in self._broken:
                continue
            kept, size = store.size()
            totals[level] = replace(totals[level], kept=kept, kept_bytes=size)
        return CacheStats(*totals)
