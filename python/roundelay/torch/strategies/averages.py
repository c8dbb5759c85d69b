"""Averages of tensors over the ranks of a process set, some of which may have joined or have older values."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import torch

from roundelay import _core
from roundelay.errors import MismatchError
from roundelay.torch.functions import allgather_object
from roundelay.torch.operations import Sum
from roundelay.torch.operations.common import by_device
from roundelay.torch.process_sets import ProcessSet, set_id

_WRAP = 2**64  # sums of int64 wrap around


class Cycle(NamedTuple):
    """What ranks must have alike when they average tensors."""

    step: int  # that of the average
    length: int  # the number of steps until the next one
    names: tuple[str, ...] = ()  # those of the tensors; empty: they have none, and go by position

    def numbers(self) -> tuple[int, ...]:
        """Returns the numbers by which cycles are compared."""
        return self.step, self.length, zlib.crc32("\n".join(self.names).encode())


_CHECKS = 1 + 2 * len(Cycle(0, 0).numbers())


def average(
    tensors: Sequence[torch.Tensor],
    cycle: Cycle,
    name: str,
    process_set: ProcessSet,
    takes_part: bool = True,
) -> list[torch.Tensor]:
    """Returns the mean of each tensor over the ranks that take part, on all ranks; one grouped operation.

    Tensors travel in their own types; each device has an operation of its own. Ranks that have joined do not
    count.

    MismatchError, on all ranks that take part: their cycles differ.
    """
    sent = [one.detach() if takes_part else torch.zeros_like(one) for one in tensors]
    parts = by_device((one, index) for index, one in enumerate(sent)) or [[]]
    means: list[torch.Tensor] = [torch.empty(0)] * len(sent)
    for number, part in enumerate(parts):
        group = [sent[index] for index in part]
        device = group[0].device if group else torch.device("cpu")
        checks = torch.tensor(
            cycle_checks(cycle) if takes_part else [0] * _CHECKS, dtype=torch.int64, device=device
        )
        sums = [torch.empty_like(one) for one in (*group, checks)]
        named = f"{name}.part{number}" if number else name
        _core.grouped_allreduce([*group, checks], sums, named, Sum, 1.0, 1.0, set_id(process_set))
        count, *squares = sums.pop().tolist()
        if not cycles_agree(count, squares):
            raise_mismatch(cycle, name, process_set)
        torch._foreach_div_(sums, count) if sums else None
        for index, mean in zip(part, sums, strict=True):
            means[index] = mean
    return means


def cycle_checks(cycle: Cycle) -> list[int]:
    """Returns the numbers that a rank adds to sums, by which all ranks see whether their cycles agree."""
    squares = ((number, _wrapped(number * number)) for number in cycle.numbers())
    return [1, *(number for pair in squares for number in pair)]


def _wrapped(number: int) -> int:
    """Returns the int64 that has the number's last 64 bits."""
    return (number + _WRAP // 2) % _WRAP - _WRAP // 2


def cycles_agree(count: int, sums: Sequence[int]) -> bool:
    """Returns whether `count` ranks had the same cycle. sums: those of cycle_checks(), but the first."""
    pairs = zip(sums[::2], sums[1::2], strict=True)
    return all((count * squares - total * total) % _WRAP == 0 for total, squares in pairs)


def raise_mismatch(cycle: Cycle, name: str, process_set: ProcessSet) -> None:
    """Raises MismatchError, on all ranks that take part: their cycles differ. All of these call it."""
    rows: list[tuple[int, Cycle]] = allgather_object((_core.rank(), cycle), f"{name}.cycles", process_set)
    (rank, first), (number, other) = rows[0], next((row for row in rows if row[1] != rows[0][1]), rows[0])
    if first[:2] == other[:2]:
        pairs = zip_longest(first.names, other.names)
        here, there = next((pair for pair in pairs if pair[0] != pair[1]), (None, None))
        raise MismatchError(
            f"the ranks average other tensors ({name!r}): where rank {rank} has {here!r}, rank {number} has "
            f"{there!r}: freeze and add the same parameters on every rank"
        )
    said = [
        f"rank {rank} after step {step}, and wants the next one {length} steps later"
        for rank, (step, length, _) in (rows[0], (number, other))
    ]
    raise MismatchError(
        f"the ranks average their parameters ({name!r}) after different steps: {'; '.join(said)}: give all "
        "ranks the same period and let them take the same steps, or use hvd.join_context for uneven data"
    )
