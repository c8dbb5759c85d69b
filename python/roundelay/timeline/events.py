"""Reads a trace, also one whose end is missing because the job died."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BETWEEN = re.compile(r"[\s,\[]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """One event of the Chrome trace format; times in microseconds of rank 0's clock."""

    phase: str  # "X": a span, "i": an instant, "n": an instant in the life of a tensor
    name: str
    rank: int
    row: int  # analysis.py has the rows
    begin: float
    duration: float
    args: dict[str, Any]
    id: str = ""  # equal for the events of one use of a tensor

    @property
    def end(self) -> float:
        """The time of its end, in microseconds."""
        return self.begin + self.duration


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """All events of a job, and what the trace lacks."""

    events: list[Event]
    truncated: bool = False  # the job died, or still runs

    @property
    def ranks(self) -> list[int]:
        """The ranks that recorded something, ascending."""
        return sorted({event.rank for event in self.events})

    @property
    def dropped(self) -> int:
        """Events that did not fit into the ranks' buffers."""
        return sum(
            int(e.args.get("events", 0)) for e in self.events if e.name == "dropped" and e.phase == "i"
        )

    def spans(self, rank: int, row: int, name: str | None = None) -> list[Event]:
        """Find the complete events of a rank's row, by time."""
        found = (e for e in self.events if e.phase == "X" and e.rank == rank and e.row == row)
        return sorted((e for e in found if name in (None, e.name)), key=lambda e: e.begin)

    def tensors(self, rank: int) -> list[tuple[float, float]]:
        """Find when each tensor of a rank was under way: from its submission to its end."""
        own = [e for e in self.events if e.phase == "n" and e.rank == rank]
        begins = {e.id: e.begin for e in own if e.name == "submit"}
        return [(begins[e.id], e.begin) for e in own if e.name == "complete" and e.id in begins]


def _objects(text: str) -> Iterator[Any]:
    """Yield the objects of a JSON array, up to where the text ends in the middle of one; then a None."""
    decoder = json.JSONDecoder()
    at = 0
    while True:
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
        if at == len(text):
            yield None
            return
        if text[at] == "]":
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            yield None
            return
        yield value


def parse(text: str) -> Trace:
    """Turn a trace's text into events.

    Raises:
        ValueError: the text is no trace: neither an array of events nor an object with `traceEvents`.

    """
    stripped = text.lstrip()
    raw: list[Any]
    if stripped.startswith("{"):
        try:
            raw = json.loads(stripped)["traceEvents"]
        except (json.JSONDecodeError, KeyError, TypeError):
            raise ValueError("no trace: an object without traceEvents") from None
        if not isinstance(raw, list):
            raise ValueError("no trace: traceEvents is no array")
    elif stripped.startswith("["):
        raw = list(_objects(stripped))
    else:
        raise ValueError("no trace: it does not start with '[' or '{'")
    truncated = bool(raw) and raw[-1] is None
    if truncated:
        raw.pop()
    events = []
    for value in raw:
        try:
            event = Event(
                phase=value["ph"],
                name=value["name"],
                rank=int(value["pid"]),
                row=int(value.get("tid", 0)),
                begin=float(value.get("ts", 0.0)),
                duration=float(value.get("dur", 0.0)),
                args=value.get("args", {}),
                id=str(value.get("id", "")),
            )
        except (TypeError, KeyError, ValueError):
            raise ValueError(f"no event of a trace: {json.dumps(value)[:120]}") from None
        events.append(event)
    return Trace(events, truncated)


def read(path: str | Path) -> Trace:
    """Read a trace file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no trace.

    """
    return parse(Path(path).read_text(encoding="utf-8", errors="replace"))
