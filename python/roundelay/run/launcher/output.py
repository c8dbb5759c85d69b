"""Shows the ranks' output in whole lines with the rank, redraws progress bars slowly, and writes files."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from roundelay.run.errors import UsageError
from roundelay.run.launcher.tracebacks import Tracebacks

PROGRESS_INTERVAL_S = 1.0  # between two showings of a progress bar that redraws its line
TAIL_LINES = 20  # the last lines of a rank's stderr are kept, to be shown if the rank fails
_LONGEST_LINE = 1 << 20
_COLOURS = (b"36", b"33", b"32", b"35", b"34", b"31")  # ranks take them in turn; all terminals show them well


class LineSplitter:
    """Cuts bytes into lines. A line that is redrawn (carriage returns) is shown now and then as it stands."""

    def __init__(self) -> None:
        self._open = b""  # the bytes since the last line's end
        self._redrawn = False
        self._shown_at = float("-inf")
        self._shown = b""

    def feed(self, data: bytes, now: float) -> list[bytes]:
        """Takes bytes as they came; returns the lines to show, without their ends. now: monotonic seconds."""
        *ended, self._open = (self._open + data).split(b"\n")
        lines = []
        for line in ended:
            text = self._last_state(line.rstrip(b"\r"))
            if not self._redrawn or text != self._shown:
                lines.append(text)
            self._redrawn, self._shown = False, b""
        if b"\r" in self._open:
            self._redrawn = True
            # Keeps a trailing "\r", which may be half of "\r\n".
            self._open = self._last_state(self._open[:-1]) + self._open[-1:]
        if self._redrawn and now - self._shown_at >= PROGRESS_INTERVAL_S:
            lines += self._show_state(now)
        if len(self._open) > _LONGEST_LINE:
            lines.append(self._open)
            self._open = b""
        return lines

    def tick(self, now: float) -> list[bytes]:
        """Returns the progress bar's state if it is due and new."""
        if self._redrawn and now - self._shown_at >= PROGRESS_INTERVAL_S:
            return self._show_state(now)
        return []

    def close(self) -> list[bytes]:
        """Returns the rest of a line that never ended."""
        text, self._open = self._last_state(self._open.rstrip(b"\r")), b""
        return [text] if text and not (self._redrawn and text == self._shown) else []

    def _show_state(self, now: float) -> list[bytes]:
        text = self._last_state(self._open.rstrip(b"\r"))
        if not text.strip() or text == self._shown:
            return []
        self._shown_at, self._shown = now, text
        return [text]

    @staticmethod
    def _last_state(line: bytes) -> bytes:
        """Returns roughly what a terminal shows in the end: the last redrawing that has text."""
        for text in reversed(line.split(b"\r")):
            if text.strip():
                return text
        return b"" if b"\r" in line else line


class Stream:
    """One of a rank's two streams. It goes to the launcher's own stream, and to a file."""

    def __init__(
        self,
        prefix: bytes,
        sink: BinaryIO,
        file: BinaryIO | None,
        clock: Callable[[], bytes] = bytes,
    ) -> None:
        """sink: the launcher's stream. clock: returns the text to show before the prefix."""
        self._prefix = prefix
        self._clock = clock
        self._sink = sink
        self._file = file
        self._splitter = LineSplitter()
        self.tail: deque[bytes] = deque(maxlen=TAIL_LINES)
        self.tracebacks = Tracebacks()

    def write(self, data: bytes, now: float) -> None:
        """Shows what the rank wrote; raises OSError (BrokenPipeError) when nobody reads any more."""
        if self._file is not None:
            self._file.write(data)
            self._file.flush()
        self._show(self._splitter.feed(data, now))

    def tick(self, now: float) -> None:
        """Shows the progress bar if it is due."""
        self._show(self._splitter.tick(now))

    def close(self) -> None:
        """Shows a last line without an end and closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._show(self._splitter.close())

    def _show(self, lines: list[bytes]) -> None:
        if not lines:
            return
        self.tail.extend(lines)
        for line in lines:
            self.tracebacks.read(line)
        prefix = self._clock() + self._prefix
        self._sink.write(b"".join(prefix + line + b"\n" for line in lines))
        self._sink.flush()


class Output:
    """All ranks' streams."""

    def __init__(
        self,
        num_proc: int,
        stdout: BinaryIO,
        stderr: BinaryIO,
        directory: str | None,
        *,
        timestamps: bool = False,
        environment: Mapping[str, str] = os.environ,
        word: str = "rank",
    ) -> None:
        """word: what the numbers from 0 to num_proc - 1 count, and those that are opened later."""
        self.streams: dict[tuple[int, str], Stream] = {}
        self._sinks = {"stdout": stdout, "stderr": stderr}
        self._directory, self._environment, self.word = directory, environment, word
        self._clock: Callable[[], bytes] = time_of_day if timestamps else bytes
        for rank in range(num_proc):
            self.open(rank)

    def open(self, rank: int) -> None:
        """Begins the streams of a rank. Raises UsageError if its files cannot be written."""
        for name, sink in self._sinks.items():
            file = None if self._directory is None else open_file(self._directory, rank, name, self.word)
            prefix = prefix_of(rank, has_colours(sink, self._environment), self.word)
            self.streams[rank, name] = Stream(prefix, sink, file, self._clock)

    def tick(self, now: float) -> None:
        """Shows the progress bars that are due."""
        for stream in self.streams.values():
            stream.tick(now)

    def close(self, rank: int) -> None:
        """Ends the streams of a rank that writes nothing any more."""
        self.streams[rank, "stdout"].close()
        self.streams[rank, "stderr"].close()

    def last_lines(self, rank: int) -> list[bytes]:
        """Returns the last lines on a rank's stderr."""
        return list(self.streams[rank, "stderr"].tail)

    def last_exception(self, rank: int) -> bytes:
        """Returns the line on a rank's stderr that names the last exception in a traceback; empty: none."""
        return self.streams[rank, "stderr"].tracebacks.exception


def has_colours(sink: BinaryIO, environment: Mapping[str, str]) -> bool:
    """Returns whether the stream is a terminal with colours (see no-color.org)."""
    return sink.isatty() and not environment.get("NO_COLOR") and environment.get("TERM", "dumb") != "dumb"


def prefix_of(rank: int, coloured: bool, word: str = "rank") -> bytes:
    """Returns the prefix of a rank's lines. Only the prefix is coloured."""
    name = f"[{word} {rank}]".encode()
    return b"\x1b[%sm%s\x1b[0m " % (_COLOURS[rank % len(_COLOURS)], name) if coloured else name + b" "


def time_of_day() -> bytes:
    """Returns the time of day for the beginning of a line, to the millisecond."""
    return datetime.now().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3].encode() + b" "


def open_file(directory: str, rank: int, name: str, word: str) -> BinaryIO:
    """Opens DIRECTORY/rank.N/NAME anew. Raises UsageError naming the path."""
    path = Path(directory) / f"{word}.{rank}" / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")
    except OSError as error:
        raise UsageError(f"cannot write --output-filename {os.fspath(path)!r}: {error.strerror}") from error
