"""What each change of an elastic job's ranks takes, by stage, for ``stats()`` and the timeline."""

from __future__ import annotations

import time
from collections import Counter

from roundelay import _core
from roundelay.run.agent.member import Place
from roundelay.torch._internal import measure

# The stages. Their counters are reset_restore_ns ...
RESTORE = "restore"  # from the exception to the question for a place
PLACE = "place"  # until the launcher gives one
INIT = "init"  # until the ranks have found each other
SYNC = "sync"  # until all have the state


class _Change:
    """The present change. One thread, the program's, uses it."""

    def __init__(self) -> None:
        self._stage, self._since = "", 0
        self._spans: list[tuple[str, int, int]] = []  # stages: some again if a generation has not begun
        self._generation = 0
        self._left: set[int] = set()  # workers
        self._came: set[int] = set()

    def begin(self, stage: str) -> None:
        """Begins a stage, and ends the one before."""
        self.end()
        self._stage, self._since = stage, time.monotonic_ns()

    def end(self) -> None:
        """Ends the stage, if one has begun."""
        if self._stage:
            now = time.monotonic_ns()
            measure.count(f"reset_{self._stage}_ns", now - self._since)
            self._spans.append((self._stage, self._since, now))
            self._stage = ""

    def note_place(self, place: Place) -> None:
        """The launcher has given this process a place in a generation, which may not begin."""
        self._generation = place.generation
        left, came = set(place.left), set(place.came)
        self._left, self._came = self._left | left - self._came, self._came - left | came

    def show(self) -> None:
        """Counts the change, and marks it in a timeline that is recorded: the ranks train from now on."""
        self.end()
        if not self._spans:
            return
        measure.record("generation", self._generation)
        measure.count("workers_left", len(self._left))
        measure.count("workers_came", len(self._came))
        if _core.timeline_enabled():
            _core.timeline_mark(self._text(), self._spans[0][1], self._spans[-1][2])
            for name, begin, end in self._spans:
                _core.timeline_mark(f"change: {name}", begin, end)
        self._spans, self._left, self._came = [], set(), set()

    def _text(self) -> str:
        took: Counter[str] = Counter()
        for name, begin, end in self._spans:
            took[name] += end - begin
        parts = [
            f"generation {self._generation}",
            *(["left: " + ", ".join(map(str, sorted(self._left)))] if self._left else []),
            *(["came: " + ", ".join(map(str, sorted(self._came)))] if self._came else []),
            ", ".join(f"{name} {time_ns / 1e9:.2f} s" for name, time_ns in took.items()),
        ]
        return "; ".join(parts)


change = _Change()
