"""Keeps the state of a run in a file, from which the run goes on with the same bits."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import roundelay.torch as hvd
from roundelay.algorithms.trees import Outline, containers, digest

FORMAT = 2


class Checkpoint:
    """The file of a run. Rank 0 alone reads and writes it, and sends its content to the others."""

    def __init__(self, path: str | os.PathLike[str], every: int, run: Mapping[str, int], first: Any) -> None:
        """Opens nothing yet.

        every: steps between two writes. run: numbers on which the bits depend. first: the first state. The
        file has these numbers and the first state's form.
        """
        self._path = Path(path)
        self._every = every
        self._run = {"format": FORMAT, **run}
        self._first = Outline.of(first)
        self._classes = list(containers(first))
        self._saved = -1  # the step in the file

    def save(self, state: Any, step: int, finished: bool) -> None:
        """Writes the state on rank 0, if it is time. A crash leaves the file as it was. May raise OSError."""
        due = finished or (step > 0 and step % self._every == 0)
        if hvd.rank() != 0 or not due or step == self._saved:
            return
        first = tuple(self._first)  # no class: load() takes those of the state alone
        content = {
            **self._run,
            "first": first,
            "step": step,
            "digest": digest((first, state)),
            "state": state,
        }
        beside = self._path.with_name(f"{self._path.name}.new")
        with beside.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name is on disk too
        finally:
            os.close(folder)
        self._saved = step

    def load(self) -> tuple[Any, int] | None:
        """Returns the file's state and step; None if there is no file.

        Collective; ValueError on every rank if the file is no checkpoint of this run.
        """
        content, error = hvd.broadcast_object(self._read(), 0, name="algorithms.checkpoint")
        if error is not None:
            raise ValueError(f"checkpoint {self._path} cannot be read: {error}")
        if content is None:
            return None
        found = self._parsed(content)
        for name, value in self._run.items():
            if found.get(name) != value:
                raise ValueError(
                    f"checkpoint {self._path} has {name} {found.get(name)}, this run has {value}: "
                    "name another file, or delete this one"
                )
        if digest((found["first"], found["state"])) != found["digest"]:
            raise ValueError(
                f"checkpoint {self._path} is damaged: its digest is not that of its state: "
                "name another file, or delete this one"
            )
        other = Outline(*found["first"])
        if other != self._first:
            raise ValueError(
                f"checkpoint {self._path} is of another algorithm: of its first state "
                f"{self._first.difference(other)}: name another file, or delete this one"
            )
        self._saved = found["step"]
        return found["state"], found["step"]

    def _read(self) -> tuple[bytes | None, str | None]:
        """Returns the file's content, or the reason why it cannot be read, on rank 0."""
        if hvd.rank() != 0:
            return None, None
        try:
            return self._path.read_bytes(), None
        except FileNotFoundError:
            folder = self._path.parent
            return None, None if folder.is_dir() else f"there is no folder {folder}"
        except Exception as error:  # the others wait to hear of it: a name with a null byte, too large a file
            return None, str(error) or type(error).__name__

    def _parsed(self, content: bytes) -> dict[str, Any]:
        classes: list[Any] = [complex, *self._classes]
        try:
            with torch.serialization.safe_globals(classes):
                found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many kinds
            text = str(error).partition("\n")[0]
            raise ValueError(f"checkpoint {self._path} cannot be read: {text}") from error
        if not isinstance(found, dict) or "digest" not in found:
            raise ValueError(f"checkpoint {self._path} is none of roundelay.algorithms: name another file")
        return found
