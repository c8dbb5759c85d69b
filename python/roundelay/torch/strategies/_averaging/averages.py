"""Averages of tensors over the ranks of a process set, some of which may have joined or have older values."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple, NoReturn

import torch

from roundelay import _core
from roundelay.errors import MismatchError
from roundelay.torch._internal.operations import Sum
from roundelay.torch._internal.operations.common import by_device
from roundelay.torch.functions import allgather_object
from roundelay.torch.process_sets import ProcessSet, set_id

_DIGEST_BYTES = 8


class Cycle(NamedTuple):
    """What ranks must have alike when they average tensors."""

    step: int  # that of the average
    length: int  # the number of steps until the next one
    names: tuple[str, ...] = ()  # those of the tensors; empty: they have none, and go by position

    def digest(self) -> bytes:
        """Returns the bytes by which cycles are compared."""
        return hashlib.blake2b(repr(tuple(self)).encode(), digest_size=_DIGEST_BYTES).digest()


class Comparison(NamedTuple):
    """What the ranks have said of their cycles."""

    members: tuple[int, ...]  # the places in the set of those that take part
    alike: bool  # these have the same cycle
    flags: bytes  # those of all ranks, combined by or


class CycleCheck:
    """Compares the cycles of ranks, beside the operation that needs them alike. It begins at once.

    takes_part: false if this rank's cycle does not count; ranks that have joined do not count either. flags:
    bytes for the other ranks.
    """

    def __init__(
        self,
        cycle: Cycle,
        name: str,
        process_set: ProcessSet,
        takes_part: bool = True,
        flags: bytes = b"",
    ) -> None:
        self._cycle, self._name, self._set = cycle, name, process_set
        here = bytearray(-(-process_set.size() // 8))  # a bit for each rank
        both_ways = bytes(2 * _DIGEST_BYTES)  # a digest and its complement, whose maxima tell
        if takes_part:
            place = process_set.rank()
            here[place // 8] = 1 << place % 8
            digest = cycle.digest()
            both_ways = digest + bytes(255 - byte for byte in digest)
        self._ends = (len(flags), len(flags) + len(here))
        fields = [(_core.Merge.OR, flags + bytes(here)), (_core.Merge.MAX, both_ways)]
        self.handle = _core.agree_async(f"{name}.cycle", fields, -1, set_id(process_set))

    def wait(self) -> Comparison:
        """Sleeps until all ranks have said theirs. Call it once."""
        values = _core.agreed(self.handle).values
        flags, here, both_ways = values[: self._ends[0]], values[slice(*self._ends)], values[self._ends[1] :]
        most, least = both_ways[:_DIGEST_BYTES], both_ways[_DIGEST_BYTES:]
        members = tuple(one for one in range(8 * len(here)) if here[one // 8] >> one % 8 & 1)
        alike = all(255 - high == low for high, low in zip(most, least, strict=True))
        return Comparison(members, not members or alike, flags)

    def members(self) -> tuple[int, ...]:
        """Sleeps until all ranks have said theirs. Returns the places in the set of those that take part.

        MismatchError, on all ranks: their cycles differ.
        """
        found = self.wait()
        if not found.alike:
            self.raise_mismatch()
        return found.members

    def raise_mismatch(self) -> NoReturn:
        """Raises MismatchError, which says how the cycles differ. All ranks call it."""
        rows: list[tuple[int, Cycle]] = allgather_object(
            (_core.rank(), self._cycle), f"{self._name}.cycles", self._set
        )
        (rank, first), (number, other) = rows[0], next((row for row in rows if row[1] != rows[0][1]), rows[0])
        if first[:2] == other[:2]:
            pairs = zip_longest(first.names, other.names)
            here, there = next((pair for pair in pairs if pair[0] != pair[1]), (None, None))
            raise MismatchError(
                f"the ranks average other tensors ({self._name!r}): where rank {rank} has {here!r}, rank "
                f"{number} has {there!r}: freeze and add the same parameters on every rank"
            )
        said = [
            f"rank {rank} after step {step}, and wants the next one {length} steps later"
            for rank, (step, length, _) in (rows[0], (number, other))
        ]
        raise MismatchError(
            f"the ranks average their parameters ({self._name!r}) after different steps: {'; '.join(said)}: "
            "give all ranks the same period and let them take the same steps, or use hvd.join_context for "
            "uneven data"
        )


def average(
    tensors: Sequence[torch.Tensor],
    cycle: Cycle,
    name: str,
    process_set: ProcessSet,
    takes_part: bool = True,
) -> list[torch.Tensor]:
    """Returns the mean of each tensor over the ranks that take part, on all ranks.

    Tensors travel in their own types; each device has one grouped operation. Ranks that have joined do not
    count.

    MismatchError, on all ranks: the cycles of those that take part differ.
    """
    check = CycleCheck(cycle, name, process_set, takes_part)
    sent = [one.detach() if takes_part else torch.zeros_like(one) for one in tensors]
    means: list[torch.Tensor] = [torch.empty(0)] * len(sent)
    for number, part in enumerate(by_device((one, index) for index, one in enumerate(sent))):
        group = [sent[index] for index in part]
        sums = [torch.empty_like(one) for one in group]
        named = f"{name}.part{number}" if number else name
        _core.grouped_allreduce(group, sums, named, Sum, 1.0, 1.0, set_id(process_set))
        for index, one in zip(part, sums, strict=True):
            means[index] = one
    members = check.members()
    if means:
        torch._foreach_div_(means, len(members))
    return means
