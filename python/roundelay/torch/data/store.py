"""Keeps records of samples in one LMDB environment, in node memory or on disk.

LMDB maps one file into all processes, has one writer and any number of readers at a time, and commits
atomically: a process that is killed leaves what was committed before.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from roundelay.torch.data import fork

MISSING = object()  # the result for a sample that is not kept
_READERS = 1024  # processes of a node that can read at a time
_READER = 64  # bytes of each in the lock file
_LEFT_FREE = 0.05  # the file system's part that stays free for other programs and gradients in shared memory
_DATA, _LOCK = _FILES = ("data.mdb", "lock.mdb")  # LMDB's names of its files


class NoRoomError(Exception):
    """A record does not fit in; the text says why."""


class StoreError(Exception):
    """LMDB cannot open or read its files."""


def lmdb_module() -> Any:
    """Returns the module lmdb. Raises RuntimeError with the cure if it is not installed."""
    try:
        import lmdb
    except ImportError as error:
        raise RuntimeError(
            f"DataCache keeps samples with lmdb, which cannot be imported ({error}): "
            "pip install 'roundelay[data]'"
        ) from error
    return lmdb


class Store:
    """One environment. Threads may share it, and forked children too: each process opens it for itself."""

    def __init__(self, folder: Path, limit: int | None) -> None:
        """Opens nothing yet. folder: made when it is first needed. limit: bytes, None: the file system's."""
        self.folder = folder
        self._limit = limit
        self._lmdb = lmdb_module()
        self._lock = threading.Lock()
        self._environment: Any = None
        fork.watch(self)

    def read(self, indices: Sequence[int], take: Callable[[memoryview], Any]) -> list[Any]:
        """Returns take(record) of each sample, or MISSING. A record is only valid inside ``take``.

        Raises StoreError.
        """
        with self._lock:
            try:
                environment = self._opened()
            except NoRoomError:  # so it keeps nothing
                return [MISSING] * len(indices)
            try:
                with environment.begin(buffers=True) as transaction:
                    records = (transaction.get(_key(index)) for index in indices)
                    return [MISSING if record is None else take(record) for record in records]
            except self._lmdb.Error as error:
                raise StoreError(str(error)) from error

    def put(self, index: int, record: bytes) -> bool:
        """Keeps a record; returns False if there is one already. Raises NoRoomError and StoreError.

        The caller has the node's writer lock, so that this does not wait.
        """
        with self._lock:
            environment = self._opened()
            self._check_room(len(record))
            try:
                with environment.begin(write=True) as transaction:
                    return bool(transaction.put(_key(index), record, overwrite=False))
            except self._lmdb.MapFullError:
                limit = environment.info()["map_size"]
                raise NoRoomError(f"its limit of {_mib(limit)} is reached") from None
            except self._lmdb.Error as error:  # the system refuses to write
                raise NoRoomError(str(error)) from error

    def _check_room(self, size: int) -> None:
        system = os.statvfs(self.folder)
        left = system.f_bavail * system.f_frsize - size
        if left < _LEFT_FREE * system.f_blocks * system.f_frsize:
            raise NoRoomError(
                f"the file system of {self.folder} has only {_mib(system.f_bavail * system.f_frsize)} left"
            )

    def size(self) -> tuple[int, int]:
        """Returns how many records there are, and the bytes that their file takes."""
        if not (self.folder / _DATA).exists():
            return 0, 0
        with self._lock:
            return self._opened().stat()["entries"], (self.folder / _DATA).stat().st_blocks * 512

    def damage(self) -> str:
        """Returns why the files are no whole environment, "" if they are. Raises StoreError."""
        with self._lock:
            try:
                info = self._opened().info()
            except StoreError as error:
                bad = (self._lmdb.InvalidError, self._lmdb.CorruptedError, self._lmdb.VersionMismatchError)
                if isinstance(error.__cause__, bad):
                    return str(error)
                raise
            pages = (info["last_pgno"] + 1) * self._environment.stat()["psize"]
            short = pages - (self.folder / _DATA).stat().st_size
        self.close()
        return f"its file lacks {short} bytes at the end" if short > 0 else ""

    def _opened(self) -> Any:
        """Returns the environment of this process. Needs the lock. Raises StoreError.

        NoRoomError: it would be new, and the file system has no room for it. LMDB maps its lock file, so that
        a write to it would be a SIGBUS.
        """
        if self._environment is not None:
            return self._environment
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            if not (self.folder / _LOCK).exists():
                self._check_room(_READERS * _READER)
            system = os.statvfs(self.folder)
            environment = self._lmdb.open(
                str(self.folder),
                map_size=self._limit or system.f_blocks * system.f_frsize,
                sync=False,  # a killed process loses nothing by it; DiskFolder knows of a crash of the system
                metasync=False,
                max_readers=_READERS,
                mode=0o600,
            )
            environment.reader_check()  # frees the places of readers that were killed
        except (OSError, self._lmdb.Error) as error:
            raise StoreError(str(error)) from error
        self._environment = environment
        return environment

    def close(self) -> None:
        """Closes the files; the next call opens them again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._environment is not None:
            self._environment.close()
            self._environment = None

    def before_fork(self) -> None:
        """Closes the files, which LMDB forbids to keep open across a fork, and keeps other threads out."""
        self._lock.acquire()
        self._close()

    def after_fork(self) -> None:
        """Lets this process's threads in again, in parent and child."""
        self._lock.release()


_shared: weakref.WeakValueDictionary[Path, Store] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def store_at(folder: Path, limit: int | None) -> Store:
    """Returns this process's only store in a folder: LMDB forbids to open its files twice in a process."""
    with _opening:
        found = _shared.get(folder)
        if found is None:
            found = _shared[folder] = Store(folder, limit)
        return found


def remove_files(folder: Path) -> None:
    """Removes an environment's files. Processes that have them open go on with their content."""
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)


def flush(folder: Path) -> None:
    """Waits until all that any process has written is on disk."""
    path = folder / _DATA
    if path.exists():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _key(index: int) -> bytes:
    return index.to_bytes(8, "big")


def _mib(size: int) -> str:
    return f"{size / 2**20:.4g} MiB"
