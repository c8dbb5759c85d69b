"""A cache's folder on the node's disk, which the next job finds again.

A record names the source of the samples. The folder belongs to one cache of one job at a time: its ranks
lock it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roundelay.torch.data import codec
from roundelay.torch.data.arguments import Arguments
from roundelay.torch.data.job import Member
from roundelay.torch.data.locks import held, lock, lock_unused, release, share
from roundelay.torch.data.store import NoRoomError, StoreError, flush, remove_files, store_at

_GATE_LIMIT_S = 30.0
_ENDING_LIMIT_S = 5.0  # a killed process has its locks until the kernel has freed what it used
_PROBES = 8  # samples whose hashes tell sources apart
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def inside(directory: Path) -> Path:
    """Returns the folder of samples in a user's directory."""
    return directory / "roundelay-cache"


class DiskFolder:
    """This process's part in the folder."""

    def __init__(self, directory: Path, member: Member, number: int) -> None:
        """Makes or finds the node's folder in ``directory`` and locks it.

        Raises NoRoomError if the disk is full, ValueError if nothing can be written there for another reason,
        RuntimeError if another job or cache has it.
        """
        self._directory, self._node = directory, member.node
        self.path = inside(directory)
        self._record = self.path / "record.json"
        self._owner = self.path / "owner.json"
        owner = {"job": member.job, "node": member.node, "cache": number}
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with held(directory, _GATE_LIMIT_S):
                self.path.mkdir(mode=0o700, exist_ok=True)
                if self.path.stat().st_uid != os.getuid():
                    raise PermissionError(f"{self.path} belongs to another user")
                self._lock = self._locked({**owner, "who": member.words}, owner)
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> Exception:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return NoRoomError(f"{self.path}: {error.strerror}")
        return ValueError(
            f"DataCache cannot use directory={str(self._directory)!r} on node {self._node} ({error}): "
            "give a folder on a disk of the node that this user may write to"
        )

    def _locked(self, said: dict[str, Any], owner: dict[str, Any]) -> int:
        """Returns a shared lock of the folder. Needs the lock of the directory.

        Waits for another job's lock: that job may have been killed.
        """
        own = lock_unused(self.path)
        there = _read(self._owner) or {}
        if own is None and there.get("job") != owner["job"]:
            own = lock_unused(self.path, _ENDING_LIMIT_S)
        if own is not None:
            try:
                _write(self._owner, said)
                share(own)
            except BaseException:
                release(own)
                raise
            return own
        if {name: there.get(name) for name in owner} != owner:
            whose = "another job that runs"
            if there.get("job") == owner["job"]:
                whose = f"DataCache number {there.get('cache')} of this job on node {there.get('node')}"
            raise RuntimeError(
                f"DataCache: directory={str(self._directory)!r} is in use by {whose}, "
                f"{there.get('who', 'an unknown rank')}: give each cache a directory of its own, on a disk "
                "of its node"
            )
        return lock(self.path, 0.0, shared=True)

    def prepare(self, arguments: Arguments, probe: Callable[[int], bytes]) -> dict[int, bytes]:
        """Keeps the folder's samples if they are of this source, else removes them with a warning.

        probe: returns the record of a sample of the source. Returns the records of the probes if the folder
        is new. Only one process may call it, before any reads. Raises as the constructor does.
        """
        length = arguments.length
        chosen = sorted({round(i * (length - 1) / (_PROBES - 1)) for i in range(_PROBES)}) if length else []
        records = {index: probe(index) for index in chosen}
        record = {
            "format": codec.FORMAT,
            "dataset": arguments.dataset,
            "length": length,
            "version": arguments.version,
            "hashes": {
                str(index): hashlib.blake2b(one, digest_size=16).hexdigest() for index, one in records.items()
            },
        }
        kept = _read(self._record)
        try:
            why = self._outdated(kept, record) if kept is not None else ""
            if why:
                warnings.warn(
                    f"DataCache: what {self.path} keeps is discarded: {why}", RuntimeWarning, stacklevel=5
                )
            if why or kept is None:
                store_at(self.path, None).close()
                remove_files(self.path)
            # The record is written before the first sample: after a crash it says that files may be missing.
            _write_to_disk(self._record, {**record, "boot": _boot(), "on disk": False})
        except (OSError, StoreError) as error:
            raise self._unusable(error) from error
        return records if why or kept is None else {}

    def _outdated(self, kept: dict[str, Any], record: dict[str, Any]) -> str:
        """Returns the reason if the kept samples must not be used; "" if they may be."""
        for name, words in (("format", "format"), ("dataset", "dataset's type"), ("length", "length")):
            if kept.get(name) != record[name]:
                return f"the {words} was {kept.get(name)!r} and is {record[name]!r}"
        if kept.get("version") != record["version"]:
            return f"version was {kept.get('version')!r} and is {record['version']!r}"
        for index, digest in record["hashes"].items():
            if kept.get("hashes", {}).get(index) != digest:
                return f"sample {index} of the source has changed (random changes belong into transform=)"
        if kept.get("boot") != _boot() and not kept.get("on disk"):
            return "the system went down before all of it was on disk"
        return store_at(self.path, None).damage()

    def leave(self) -> None:
        """Gives the folder up. The last rank waits until all is on disk."""
        release(self._lock)
        try:
            with held(self._directory, _GATE_LIMIT_S):
                own = lock_unused(self.path)
                if own is not None:
                    try:
                        self._note_on_disk()
                    finally:
                        release(own)
        except OSError:
            return  # the record still says that the file may not be on disk

    def _note_on_disk(self) -> None:
        """Waits until all is on disk, and notes this in the record, if there is one. Raises OSError."""
        record = _read(self._record)
        if record is not None:
            flush(self.path)
            _write_to_disk(self._record, {**record, "boot": _boot(), "on disk": True})


def _boot() -> str:
    return _BOOT_ID.read_text().strip()


def _read(path: Path) -> dict[str, Any] | None:
    """Returns a file's content; None if there is none or it is damaged."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _write(path: Path, content: dict[str, Any]) -> None:
    """Writes a file that other processes see whole or as before."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump(content, file)
    new.replace(path)


def _write_to_disk(path: Path, content: dict[str, Any]) -> None:
    """Writes a file such that a crash of the system does not bring the former one back."""
    _write(path, content)
    for one in (path, path.parent):
        descriptor = os.open(one, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
