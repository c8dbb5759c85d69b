"""The bytes that the techniques of one optimizer have in an agreement round (techniques.py)."""

from __future__ import annotations

from typing import NamedTuple

from roundelay.torch.strategies import Strategy

LONGEST_PROPOSAL = 256  # bytes
STEP_BYTES = 8


class RoundResult(NamedTuple):
    """The combined values of a round, taken apart."""

    here: bytes  # a byte for each rank
    unflushed: int  # not 0: some rank may keep gradients back
    step: int  # rank 0's
    proposal: bytes | None

    @classmethod
    def parse(cls, values: bytes, size: int) -> RoundResult:
        """Takes the combined values of so many ranks apart."""
        step = size + 1
        proposal = step + STEP_BYTES
        length = int.from_bytes(values[proposal : proposal + 2], "big")
        return cls(
            values[:size],
            values[size],
            int.from_bytes(values[step:proposal], "big"),
            values[proposal + 2 : proposal + 1 + length] if length else None,
        )


def proposal_of(strategy: Strategy) -> bytes:
    """Returns the strategy's proposal after its length and one; nothing if there is none.

    ValueError: it is no bytes, or too long.
    """
    proposal = strategy.propose()
    if proposal is None:
        return b""
    if not isinstance(proposal, bytes) or len(proposal) > LONGEST_PROPOSAL:
        raise ValueError(
            f"strategy {strategy.text} proposed {proposal!r:.80}: it must be at most {LONGEST_PROPOSAL} bytes"
        )
    return (1 + len(proposal)).to_bytes(2, "big") + proposal


def round_length(size: int, proposes: bool) -> int:
    """Returns the number of bytes of each rank, of so many. proposes: the strategy makes proposals."""
    proposal = 2 + LONGEST_PROPOSAL if proposes else 0
    return size + 1 + STEP_BYTES + proposal
