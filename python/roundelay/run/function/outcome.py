"""Turns the ranks' replies into their values, or into the exception of the rank that failed first."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from roundelay.run.function import worker


class RemoteTraceback(Exception):  # noqa: N818  the cause of an error, and none itself
    """The cause of an exception that a rank raised: the traceback there, as text."""

    def __str__(self) -> str:
        """Puts the traceback on lines of its own below the name."""
        return f"\n{self.args[0]}"


@dataclass
class Reply:
    """The bytes that have come from one rank so far."""

    data: bytearray = field(default_factory=bytearray)

    @property
    def kind(self) -> bytes | None:
        """VALUE or FAILURE once the reply is complete, else None."""
        if len(self.data) < worker.HEADER.size:
            return None
        kind, length = worker.HEADER.unpack_from(self.data)
        return bytes(kind) if len(self.data) == worker.HEADER.size + length else None

    def load(self) -> Any:
        """Unpickles the reply, and forgets it."""
        with memoryview(self.data) as data, data[worker.HEADER.size :] as body:
            content = pickle.loads(body)
        self.data = bytearray()
        return content


@dataclass(frozen=True)
class End:
    """The launcher's last message; result_pipe.ResultPipe.end writes the fields."""

    status: int
    text: str  # the message about a failure
    rank: int | None  # the rank that failed first; of an elastic job, the worker
    ranks: list[int]  # whose values count: all ranks; or the workers of the last generation, by rank
    word: str = "rank"  # what these numbers are
    last_lines: list[str] = field(default_factory=list)  # that rank's last lines on stderr
    unwell: list[tuple[int, str]] = field(default_factory=list)  # ranks that failed or were told to end


def values(replies: Mapping[int, Reply], end: End) -> list[Any]:
    """Returns the ranks' values in order, or raises the exception of the rank that failed first."""
    if not end.ranks or any(replies[rank].kind != worker.VALUE for rank in end.ranks):
        raise failure(replies, end)
    if end.status != 0:
        ranks = ", ".join(f"{end.word} {rank} ({how})" for rank, how in end.unwell) or end.text
        warnings.warn(
            f"every rank's function returned, but not every rank ended well by itself: {ranks}",
            RuntimeWarning,
            stacklevel=5,  # roundelay.run's caller
        )
    return [_value(f"{end.word} {rank}", replies[rank]) for rank in end.ranks]


def _value(rank: str, reply: Reply) -> Any:
    try:
        return reply.load()
    except Exception as error:
        raise RuntimeError(f"the result of {rank} cannot be unpickled here: {error!r}") from error


def failure(replies: Mapping[int, Reply], end: End) -> Exception:
    """Returns the exception to raise for a job that failed."""
    rank = end.rank
    if rank is None and end.status == 0:
        rank = next(rank for rank in end.ranks if replies[rank].kind != worker.VALUE)
        return RuntimeError(f"{end.word} {rank} ended with exit code 0 before its function had returned")
    if rank is None:
        return RuntimeError(end.text)
    reply = replies[rank]
    if reply.kind == worker.FAILURE:
        text, pickled = reply.load()
        return _raised(f"{end.word} {rank}", text, pickled)
    when = " after its function had returned" if reply.kind == worker.VALUE else ""
    lines = "".join(f"\n  {line}" for line in end.last_lines)
    said = f"; its last lines on stderr:{lines}" if lines else ""
    return RuntimeError(f"{end.text}{when}{said}")


def _raised(rank: str, text: str, pickled: bytes | None) -> Exception:
    """Returns the exception that a rank raised, with the rank's traceback as the cause."""
    try:
        error = pickle.loads(pickled) if pickled is not None else None
    except Exception:
        error = None
    if isinstance(error, Exception):
        error.__cause__ = RemoteTraceback(f"{rank}:\n{text.rstrip()}")
        return error
    return RuntimeError(f"{rank} failed:\n{text.rstrip()}")
