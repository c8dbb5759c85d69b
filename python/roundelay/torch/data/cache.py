"""DataCache: a map-style dataset that reads each sample of another one once."""

from __future__ import annotations

import itertools
import operator
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from roundelay.torch.data import arguments, disk_folder, job
from roundelay.torch.data.counters import CacheStats
from roundelay.torch.data.disk_folder import DiskFolder
from roundelay.torch.data.memory_folder import DisagreementError, MemoryFolder
from roundelay.torch.data.node_cache import NodeCache, Storage
from roundelay.torch.data.store import NoRoomError, lmdb_module

_numbers = itertools.count(1)  # counts the caches that this process makes
_free: list[int] = []  # numbers of caches that could not be made; the next attempts take them


class DataCache(Dataset[Any]):
    """A dataset around another one, which a node reads once: in the first epoch.

    Later epochs read from the node's memory, then from its disk. All ranks of a node and their DataLoader
    workers, forked or spawned, share one cache, and each sample is in it once. With ``NodeSampler`` a node
    reads the same part of the dataset in every epoch. Every rank makes the cache, with equal arguments and,
    if there are several, in the same order. Nothing is sent, and ``hvd.init()`` need not have been called.

    dataset: has a length and gives the same sample for an index in every epoch, decoded, without random
    changes. Samples are tensors, arrays, bytes, PIL images, numbers, strings, and tuples, lists and dicts of
    them; other values are pickled. They come back as new objects that may be written to.
    directory: a folder on the node's disk for samples that do not fit into memory. The next job finds them
    there. The folder belongs to one cache at a time.
    memory: the node's memory for samples: bytes, or text like "4 GiB"; 0: all samples go to the disk.
    transform: changes each sample after it was read, in every epoch anew; it may be random.
    version: a name of the source's state. If it differs from that of the samples in ``directory``, or the
    dataset's type or length or one of 8 samples does, these are discarded.

    Raises TypeError and ValueError for bad arguments, for a directory that cannot be written to, and if the
    node's ranks disagree; RuntimeError if another cache has the directory, or lmdb is not installed.
    """

    def __init__(
        self,
        dataset: Any,
        directory: str | os.PathLike[str] | None = None,
        memory: int | str = "4 GiB",
        transform: Callable[[Any], Any] | None = None,
        version: str = "",
    ) -> None:
        lmdb_module()
        given = arguments.read(dataset, directory, memory, version)
        self.dataset, self.transform = dataset, transform
        self._length = given.length
        number = _next_number()
        try:
            self._find_or_make(given, number)
        except DisagreementError:
            raise  # the other ranks made a cache of this number, so the number is taken
        except BaseException:
            _free.append(number)
            raise

    def _find_or_make(self, given: arguments.Arguments, number: int) -> None:
        """Finds or makes the cache that this node's ranks have under a number."""
        member = job.this_process()
        directory = None if given.directory is None else Path(given.directory)
        folder, disk = MemoryFolder(member, number), _Disk()
        try:
            self._use(folder, given, directory)

            def prepare() -> bool:
                """Returns whether the disk has room for the cache."""
                try:
                    if directory is not None:
                        disk.folder = DiskFolder(directory, member, number)
                        self._keep(disk.folder.prepare(given, self._record_of))
                except NoRoomError as error:
                    self._cache.warn_once(str(error))
                    disk.leave()
                    return False
                return True

            if not folder.agree(given, prepare):
                directory = None
                self._use(folder, given, directory)
            if directory is not None and disk.folder is None:
                disk.folder = DiskFolder(directory, member, number)
        except BaseException:
            _leave(folder, disk, os.getpid())
            raise
        weakref.finalize(self, _leave, folder, disk, os.getpid())

    def _use(self, folder: MemoryFolder, given: arguments.Arguments, directory: Path | None) -> None:
        """Makes the node's cache with these folders."""
        disk = None if directory is None else disk_folder.inside(directory)
        self._cache = NodeCache(Storage(folder.path, given.memory, disk), given.dataset)

    def _record_of(self, index: int) -> bytes:
        return self._cache.encode(index, self.dataset[index])

    def _keep(self, records: dict[int, bytes]) -> None:
        for index, record in records.items():
            self._cache.keep(index, record)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Returns several samples; DataLoader calls it with the indices of a batch."""
        samples = self._cache.read([self._checked(index) for index in indices], self._from_source)
        return samples if self.transform is None else [self.transform(sample) for sample in samples]

    def _from_source(self, indices: list[int]) -> Sequence[Any]:
        read: Callable[[list[int]], Sequence[Any]] | None = getattr(self.dataset, "__getitems__", None)
        return [self.dataset[index] for index in indices] if read is None else read(indices)

    def _checked(self, index: int) -> int:
        number = operator.index(index)
        if not -self._length <= number < self._length:
            raise IndexError(f"DataCache: there is no sample {number}, only {self._length} of them")
        return number % self._length

    def stats(self) -> CacheStats:
        """Returns the reads of all processes of the node since the first rank made the cache, by level."""
        return self._cache.stats()


def _next_number() -> int:
    try:
        return _free.pop()
    except IndexError:
        return next(_numbers)


@dataclass
class _Disk:
    """The folder on disk, once this process has a part in it."""

    folder: DiskFolder | None = None

    def leave(self) -> None:
        """Gives the folder up."""
        if self.folder is not None:
            self.folder.leave()
        self.folder = None


def _leave(folder: MemoryFolder, disk: _Disk, process: int) -> None:
    """Gives up the folders of a cache, in the process that made it."""
    if os.getpid() != process:
        return
    disk.leave()
    folder.leave()
