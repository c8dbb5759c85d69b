"""A cache's folder in node memory: the processes of one node compare their arguments and keep samples there.

The ranks that made the cache lock the folder. The last one that leaves removes it. Any cache of this user on
the node removes the folders of jobs that were killed, when it is made and when it ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from roundelay.torch.data.arguments import Arguments
from roundelay.torch.data.job import Member
from roundelay.torch.data.locks import held, lock, lock_unused, release

NODE_MEMORY = Path("/dev/shm")
_GATE_LIMIT_S = 30.0  # the work takes milliseconds
_PREPARE_LIMIT_S = 600.0  # the first rank may read some samples from a slow source
_DISAGREEMENT = "disagreement"


class DisagreementError(ValueError):
    """The ranks of a node gave one cache different arguments."""


class MemoryFolder:
    """This process's part in the folder of one cache of its job and node."""

    def __init__(self, member: Member, number: int) -> None:
        """Makes or finds the folder. number: counts the caches of a process. Raises RuntimeError."""
        self._member, self._number = member, number
        key = hashlib.sha256(f"{member.job}\n{member.node}\n{number}".encode()).hexdigest()
        self.path = NODE_MEMORY / f"{_prefix()}{key[:16]}"
        try:
            with held(NODE_MEMORY, _GATE_LIMIT_S):
                _remove_unused()
                self.path.mkdir(mode=0o700, exist_ok=True)
                if not _is_own(self.path):
                    raise PermissionError(f"{self.path} belongs to another user")
                self._lock = lock(self.path, 0.0, shared=True)
        except OSError as error:
            raise _unusable(error) from error

    def agree(self, arguments: Arguments, prepare: Callable[[], bool]) -> bool:
        """Compares the arguments with those of the node's first rank. Returns the result of its ``prepare``.

        Raises DisagreementError if they differ. Processes that read already find the text in ``objection``.
        """
        agreed = self.path / "agreed"
        gate = self._touched("gate")
        try:
            taken = lock(gate, _PREPARE_LIMIT_S)
        except TimeoutError:
            raise RuntimeError(
                f"DataCache: another rank of this node has prepared the cache for {_PREPARE_LIMIT_S:.0f} s: "
                "its source does not answer, or the rank is stopped"
            ) from None
        try:
            if not agreed.exists():
                prepared = prepare()
                said = {"arguments": vars(arguments), "rank": self._member.words, "prepared": prepared}
                self._write(agreed, json.dumps(said))
                return prepared
            said = json.loads(agreed.read_text())
            self._compare(arguments, said)
            return bool(said["prepared"])
        finally:
            release(taken)

    def _compare(self, arguments: Arguments, said: dict[str, Any]) -> None:
        """Raises DisagreementError if the arguments differ from the first rank's; all get the first text."""
        first = Arguments(**said["arguments"])
        differences = first.differences(arguments, said["rank"], self._member.words)
        if not differences:
            return
        file = objection(self.path)
        if not file.exists():
            text = (
                f"DataCache number {self._number} of the ranks on node {self._member.node} has different "
                f"arguments: {differences}. All ranks must make the same caches in the same order"
            )
            self._write(file, text)
        raise DisagreementError(file.read_text())

    def leave(self) -> None:
        """Removes the folder unless other ranks use it, and the folders of killed jobs.

        If that fails, a later cache removes them.
        """
        release(self._lock)
        with suppress(OSError), held(NODE_MEMORY, _GATE_LIMIT_S):
            _remove_unused()

    def _touched(self, name: str) -> Path:
        path = self.path / name
        try:
            path.touch()
        except OSError as error:
            raise _unusable(error) from error
        return path

    def _write(self, path: Path, text: str) -> None:
        """Writes a file that other processes see whole or not at all."""
        new = path.with_suffix(".new")
        try:
            new.write_text(text)
        except OSError as error:
            raise _unusable(error) from error
        new.replace(path)


def objection(folder: Path) -> Path:
    """Returns the file with the text of the ranks' disagreement. It is only there if they disagree."""
    return folder / _DISAGREEMENT


def _prefix() -> str:
    return f"roundelay-data-{os.getuid()}-"


def _remove_unused() -> None:
    """Removes the folders that no process has locked. Needs the lock of NODE_MEMORY."""
    for folder in NODE_MEMORY.glob(f"{_prefix()}*"):
        own = lock_unused(folder) if _is_own(folder) else None
        if own is not None:
            shutil.rmtree(folder, ignore_errors=True)
            release(own)


def _is_own(folder: Path) -> bool:
    """Returns whether this is a folder of this user. The names in node memory are free to all users."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _unusable(error: OSError) -> RuntimeError:
    return RuntimeError(f"DataCache cannot use the node's memory, {NODE_MEMORY}: {error}")
