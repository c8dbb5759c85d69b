"""The values of Python's decisions in an agreement round of the ranks (optimizer/gradient_sync.py)."""

from __future__ import annotations

from typing import NamedTuple

from roundelay import _core
from roundelay.tuning.buckets import Cuts

LONGEST_PROPOSAL = 256  # bytes
_CUTS_BYTES = 8  # each number of Cuts takes these
_STEP_BYTES = 8
_FAILED, _UNMEASURED, _KEEPS_BACK = 1, 2, 4  # of some rank
_REORDER, _RECUT = 1, 2  # proposals of rank 0
_FLAGS = 2
_CUTS = _FLAGS + 1
_STEP = _CUTS + 2 * _CUTS_BYTES
_LENGTH = _STEP + _STEP_BYTES
_PROPOSAL = _LENGTH + 2


class PoolValues(NamedTuple):
    """What a rank says of a gradient pool; merged: what some rank says, or what rank 0 proposes."""

    failed: bool = False  # some rank could not make the pool
    unmeasured: bool = False  # some rank has no measured numbers
    reorder: bool = False  # rank 0 has another order
    cuts: Cuts | None = None  # rank 0's sizes; None: those that the buckets have


class TechniqueValues(NamedTuple):
    """What a rank says of techniques; merged: what some rank says, or what rank 0 says."""

    keeps_back: bool = False  # some rank may keep gradients back
    step: int | None = None  # rank 0's number of the step; None: all ranks have counted alike
    proposal: bytes | None = None  # of rank 0's strategy


class Fields(NamedTuple):
    """This rank's values."""

    masters: bool  # the optimizer has fp32 masters
    pool: PoolValues
    techniques: TechniqueValues
    weights_due: bool  # this rank has not compared its first weights; merged: no rank has

    def pack(self) -> list[tuple[_core.Merge, bytes]]:
        """Returns the fields: what has to be equal, what some rank, rank 0 and all ranks say."""
        pool, techniques = self.pool, self.techniques
        some = _FAILED * pool.failed + _UNMEASURED * pool.unmeasured + _KEEPS_BACK * techniques.keeps_back
        cuts = pool.cuts or Cuts(0, 0)
        proposal = techniques.proposal
        root = [
            bytes([_REORDER * pool.reorder + _RECUT * (pool.cuts is not None)]),
            *(number.to_bytes(_CUTS_BYTES, "big") for number in cuts),
            (0 if techniques.step is None else techniques.step + 1).to_bytes(_STEP_BYTES, "big"),
            (0 if proposal is None else len(proposal) + 1).to_bytes(2, "big"),
            (proposal or b"").ljust(LONGEST_PROPOSAL, b"\0"),
        ]
        return [
            (_core.Merge.EQUAL, bytes([self.masters])),
            (_core.Merge.OR, bytes([some])),
            (_core.Merge.ROOT, b"".join(root)),
            (_core.Merge.AND, bytes([self.weights_due])),
        ]


class Round(NamedTuple):
    """The values of all ranks, merged."""

    some_joined: bool
    busy: bool  # some rank waits for other rounds, too
    pool: PoolValues
    techniques: TechniqueValues
    weights_due: bool = False

    @classmethod
    def parse(cls, values: bytes, absent: list[int], busy: bool) -> Round:
        """Takes the bytes apart that belong to the fields of Fields.pack()."""
        some, flags = values[1], values[_FLAGS]
        theta, last, step = (
            int.from_bytes(values[at : at + _CUTS_BYTES], "big") for at in range(_CUTS, _LENGTH, _CUTS_BYTES)
        )
        length = int.from_bytes(values[_LENGTH:_PROPOSAL], "big")
        pool = PoolValues(
            failed=bool(some & _FAILED),
            unmeasured=bool(some & _UNMEASURED),
            reorder=bool(flags & _REORDER),
            cuts=Cuts(theta, last) if flags & _RECUT else None,
        )
        techniques = TechniqueValues(
            keeps_back=bool(some & _KEEPS_BACK),
            step=step - 1 if step else None,
            proposal=values[_PROPOSAL : _PROPOSAL + length - 1] if length else None,
        )
        return cls(bool(absent), busy, pool, techniques, bool(values[-1]))
