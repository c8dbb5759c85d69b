"""The messages between ``roundelay tune`` and its ranks: the plan, and the lines that rank 0 prints."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

MARK = "@roundelay-tune "  # begins rank 0's lines


@dataclass(frozen=True)
class Plan:
    """The sizes and repetitions of a measurement."""

    sizes: tuple[int, ...]  # bytes, ascending
    rounds: int  # each round measures all algorithms, so that drift of the machine affects all alike
    seconds_a_cell: float
    longest_seconds: float  # if one operation takes longer, the algorithm's larger sizes are left out

    def to_word(self) -> str:
        """Returns the plan as one word of a command line."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_word(cls, word: str) -> Plan:
        """Reads the word that ``to_word`` made."""
        content = json.loads(word)
        return cls(**{**content, "sizes": tuple(content["sizes"])})
