"""A cache's folder in node memory: the processes of one node meet there, and keep samples there.

The ranks that made the cache lock the folder. The last one that leaves removes it. The next cache that this
user makes on the node removes the folders of jobs that were killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from roundelay.torch.data.arguments import Arguments
from roundelay.torch.data.job import Member
from roundelay.torch.data.locks import held, lock, lock_unused, release

NODE_MEMORY = Path("/dev/shm")
_GATE_LIMIT_S = 30.0  # for work that takes milliseconds
_PREPARE_LIMIT_S = 600.0  # the first rank may read some samples from a slow source
_DISAGREEMENT = "disagreement"


class MemoryFolder:
    """This process's part in the folder of one cache of its job and node."""

    def __init__(self, member: Member, number: int) -> None:
        """Makes or finds the folder. number: counts the caches of a process. Raises RuntimeError."""
        self._member, self._number = member, number
        key = hashlib.sha256(f"{member.job}\n{member.node}\n{number}".encode()).hexdigest()
        prefix = f"roundelay-data-{os.getuid()}-"
        self.path = NODE_MEMORY / f"{prefix}{key[:16]}"
        try:
            with held(NODE_MEMORY, _GATE_LIMIT_S):
                for folder in NODE_MEMORY.glob(f"{prefix}*"):
                    _remove_unused(folder)
                self.path.mkdir(mode=0o700, exist_ok=True)
                self._lock = lock(self.path, 0.0, shared=True)
        except (OSError, TimeoutError) as error:
            raise RuntimeError(f"DataCache cannot use the node's memory, {NODE_MEMORY}: {error}") from error

    def agree(self, arguments: Arguments, prepare: Callable[[], None]) -> None:
        """Compares the arguments with those of the node's first rank. The first rank calls ``prepare``.

        Raises ValueError if they differ. The processes that read already find the same text (``objection``).
        """
        agreed = self.path / "agreed"
        meeting = self.path / "meeting"
        meeting.touch()
        try:
            with held(meeting, _PREPARE_LIMIT_S):
                if not agreed.exists():
                    prepare()
                    said = {"arguments": vars(arguments), "rank": self._member.words}
                    _write(agreed, json.dumps(said))
                    return
                said = json.loads(agreed.read_text())
        except TimeoutError:
            raise RuntimeError(
                f"DataCache: another rank of this node has prepared the cache for {_PREPARE_LIMIT_S:.0f} s: "
                "its source does not answer, or the rank is stopped"
            ) from None
        first = Arguments(**said["arguments"])
        differences = first.differences(arguments, said["rank"], self._member.words)
        if differences:
            text = (
                f"DataCache number {self._number} of the ranks on node {self._member.node} has different "
                f"arguments: {differences}. All ranks must make the same caches in the same order"
            )
            _write(self.path / _DISAGREEMENT, text)
            raise ValueError(text)

    def leave(self) -> None:
        """Removes the folder unless other ranks use it. What is not removed now is removed later."""
        release(self._lock)
        try:
            with held(NODE_MEMORY, _GATE_LIMIT_S):
                _remove_unused(self.path)
        except (OSError, TimeoutError):
            return


def objection(folder: Path) -> str:
    """Returns the text of the ranks' disagreement, "" if there is none."""
    path = folder / _DISAGREEMENT
    return path.read_text() if path.exists() else ""


def _remove_unused(folder: Path) -> None:
    """Removes a folder that no process has locked. Needs the lock of NODE_MEMORY."""
    own = lock_unused(folder)
    if own is not None:
        shutil.rmtree(folder, ignore_errors=True)
        release(own)


def _write(path: Path, text: str) -> None:
    """Writes a file that other processes see whole or not at all."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)
