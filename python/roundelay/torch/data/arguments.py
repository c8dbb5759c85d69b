"""Checks DataCache's arguments, and compares those of a node's ranks."""

from __future__ import annotations

import array
import dataclasses
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset, Subset

LEAST_MEMORY = 1 << 20
_UNITS = {"": 0, "B": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?", re.IGNORECASE)


@dataclass(frozen=True)
class Arguments:
    """The arguments that all ranks of a node must give alike."""

    dataset: str  # the dataset's type, and of a Subset its choice
    length: int
    version: str
    memory: int  # bytes
    directory: str | None

    def differences(self, other: Arguments, here: str, there: str) -> str:
        """Returns the differences in words, "" if there are none. here, there: names of the two ranks."""
        own, others = dataclasses.asdict(self), dataclasses.asdict(other)
        return ", ".join(
            f"{name} is {own[name]!r} on {here} and {others[name]!r} on {there}"
            for name in own
            if own[name] != others[name]
        )


def read(
    dataset: Any, directory: str | os.PathLike[str] | None, memory: int | str, version: str
) -> Arguments:
    """Returns the checked arguments. Raises TypeError and ValueError that name the argument."""
    name = _type_name(dataset)
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise TypeError(f"DataCache needs a map-style dataset, with __getitem__: {name} is none")
    if not isinstance(version, str):
        raise TypeError(f"version must be a string, not {version!r}")
    if not isinstance(directory, str | os.PathLike | None):
        raise TypeError(f"directory must be a path or None, not {directory!r}")
    limit = bytes_of(memory)
    if limit == 0 and directory is None:
        raise ValueError("memory=0 needs directory=: else there is no room for any sample")
    place = None if directory is None else str(Path(directory).expanduser().absolute())
    return Arguments(_named(dataset), length_of(dataset, "DataCache"), version, limit, place)


def _type_name(dataset: Any) -> str:
    return f"{type(dataset).__module__}.{type(dataset).__qualname__}"


def _named(dataset: Any) -> str:
    """Returns the dataset's type. Ranks' subsets of one dataset are equal in all but their indices."""
    name = _type_name(dataset)
    if not isinstance(dataset, Subset):
        return name
    chosen = hashlib.blake2b(array.array("q", map(int, dataset.indices)), digest_size=4).hexdigest()
    return f"{name} with indices {chosen} of {_named(dataset.dataset)}"


def length_of(dataset: Any, who: str) -> int:
    """Returns len(dataset). Raises TypeError if it has none. who: the caller's name in the message."""
    try:
        return len(dataset)
    except TypeError as error:
        raise TypeError(
            f"{who} needs a dataset with a length: len() of {_type_name(dataset)} fails "
            f"({error}); define __len__"
        ) from error


def bytes_of(memory: int | str) -> int:
    """Returns a size in bytes: a number, or text like "4 GiB". Raises ValueError or TypeError."""
    if isinstance(memory, bool) or not isinstance(memory, int | str):
        raise TypeError(f'memory must be bytes or text like "4 GiB", not {memory!r}')
    if isinstance(memory, str):
        match = _SIZE.fullmatch(memory.strip())
        if match is None:
            raise ValueError(f'memory must be bytes or text like "4 GiB" or "512 MiB", not {memory!r}')
        size = int(float(match[1]) * 2 ** _UNITS[(match[2] or "").upper()])
    else:
        size = memory
    if size != 0 and size < LEAST_MEMORY:
        raise ValueError(f"memory must be 0 (none) or at least 1 MiB, not {memory!r}")
    return size
