"""What the launcher of a function does beside what every launcher does: hands it out, passes results on."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass

from roundelay.run import agent
from roundelay.run.result import Ending, JobResult, how

# To the caller: kind, rank and length, then that many bytes: a piece of a rank's reply, or at the end JSON.
HEADER = struct.Struct(">cII")
PIECE, END = b"p", b"e"


@dataclass
class ResultPipe:
    """The two descriptors that the caller handed down: the function, and where results go."""

    payload: int
    results: int

    def variables(self) -> dict[str, str]:
        """Where the agents find the function: open to this user's processes on this machine only."""
        return {agent.FUNCTION: f"/proc/{os.getpid()}/fd/{self.payload}"}

    def on_result(self, rank: int, piece: bytes) -> None:
        """Passes a piece of a rank's reply on. Raises BrokenPipeError if the caller is gone."""
        self._send(PIECE, rank, piece)

    def refuse(self, reason: str) -> None:
        """Says that the call was wrong."""
        self._send(END, 0, json.dumps({"refused": reason}).encode())

    def end(self, result: JobResult, endings: list[Ending], last_words: list[bytes]) -> None:
        """Says what became of the job."""
        unwell = {ending.rank: how(ending.returncode) for ending in endings if ending.returncode != 0}
        unwell.update({ending.rank: "told to end" for ending in endings if ending.stopped})
        end = {
            "status": result.status,
            "text": result.text,
            "rank": result.rank,
            "last_words": [word.decode(errors="replace") for word in last_words],
            "unwell": sorted(unwell.items()),
        }
        self._send(END, 0, json.dumps(end).encode())

    def _send(self, kind: bytes, rank: int, payload: bytes) -> None:
        message = memoryview(HEADER.pack(kind, rank, len(payload)) + payload)
        while message:
            message = message[os.write(self.results, message) :]
