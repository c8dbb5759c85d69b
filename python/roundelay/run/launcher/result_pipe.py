"""Connects the launcher to the caller of a function: hands out the function, sends results back."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from roundelay.run.agent import protocol
from roundelay.run.launcher.result import Ending, JobResult
from roundelay.run.system.processes import how

# A message to the caller: kind, rank and length, then as many bytes: a piece of a rank's reply, or JSON.
HEADER = struct.Struct(">cII")
PIECE, GENERATION, END = b"p", b"g", b"e"


@dataclass
class ResultPipe:
    """The descriptors that the caller handed down: the file with the function, and the pipe for results."""

    payload: int
    results: int

    def variables(self) -> dict[str, str]:
        """Returns the variable that names the function's file. Only this user's processes can open it."""
        return {protocol.FUNCTION: f"/proc/{os.getpid()}/fd/{self.payload}"}

    def function(self) -> bytes:
        """Returns the function, packed."""
        return Path(f"/proc/self/fd/{self.payload}").read_bytes()

    def on_result(self, rank: int, piece: bytes) -> None:
        """Sends a piece of a rank's reply. Raises BrokenPipeError if the caller is gone."""
        self._send(PIECE, rank, piece)

    def on_generation(self, workers: list[int]) -> None:
        """Tells the caller whose values count from now on, in an elastic job."""
        self._send(GENERATION, 0, json.dumps(workers).encode())

    def refuse(self, reason: str) -> None:
        """Tells the caller that its arguments were wrong."""
        self._send(END, 0, json.dumps({"refused": reason}).encode())

    def end(
        self, result: JobResult, endings: list[Ending], last_lines: list[bytes], ranks: list[int], word: str
    ) -> None:
        """Tells the caller the result. ranks: those whose values count; word: what their numbers are."""
        unwell = {ending.rank: how(ending.returncode) for ending in endings if ending.returncode != 0}
        unwell.update({ending.rank: "told to end" for ending in endings if ending.stopped})
        end = {
            "status": result.status,
            "text": result.text,
            "rank": result.rank,
            "last_lines": [line.decode(errors="replace") for line in last_lines],
            "ranks": ranks,
            "word": word,
            "unwell": sorted(unwell.items()),
        }
        self._send(END, 0, json.dumps(end).encode())

    def _send(self, kind: bytes, rank: int, payload: bytes) -> None:
        message = memoryview(HEADER.pack(kind, rank, len(payload)) + payload)
        while message:
            message = message[os.write(self.results, message) :]
