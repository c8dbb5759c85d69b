"""Averages of tensors over the ranks of a process set, some of which may have joined or have older values."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from roundelay import _core
from roundelay.errors import MismatchError
from roundelay.torch.operations import Sum, allgather
from roundelay.torch.operations.common import by_device, row_of_this_rank
from roundelay.torch.process_sets import ProcessSet, set_id

_WRAP = 2**64  # sums of int64 wrap around


def average(
    tensors: Sequence[torch.Tensor],
    cycle: tuple[int, int],
    name: str,
    process_set: ProcessSet,
    takes_part: bool = True,
) -> list[torch.Tensor]:
    """Returns the mean of each tensor over the ranks that take part, on all ranks; one grouped operation.

    Tensors travel in their own types; each device has an operation of its own. Ranks that have joined do not
    count. cycle: the step of the average, and the number of steps until the next one.

    MismatchError, on all ranks that take part: their cycles differ.
    """
    sent = [one.detach() if takes_part else torch.zeros_like(one) for one in tensors]
    parts = by_device((one, index) for index, one in enumerate(sent)) or [[]]
    means: list[torch.Tensor] = [torch.empty(0)] * len(sent)
    for number, part in enumerate(parts):
        group = [sent[index] for index in part]
        device = group[0].device if group else torch.device("cpu")
        checks = torch.tensor(
            cycle_checks(cycle) if takes_part else [0] * 5, dtype=torch.int64, device=device
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


def cycle_checks(cycle: tuple[int, int]) -> list[int]:
    """Returns the numbers that a rank adds to sums, by which all ranks see whether their cycles agree."""
    step, length = cycle
    return [1, step, step * step, length, length * length]


def cycles_agree(count: int, sums: Sequence[int]) -> bool:
    """Returns whether `count` ranks had the same cycle. sums: those of cycle_checks(), but the first."""
    pairs = zip(sums[::2], sums[1::2], strict=True)
    return all((count * squares - total * total) % _WRAP == 0 for total, squares in pairs)


def raise_mismatch(cycle: tuple[int, int], name: str, process_set: ProcessSet) -> None:
    """Raises MismatchError, on all ranks that take part: their cycles differ. All of these call it."""
    rows = allgather(row_of_this_rank(*cycle), f"{name}.cycles", process_set).tolist()
    other = next((row for row in rows if row[1:] != rows[0][1:]), rows[0])
    said = [
        f"rank {rank} after step {step}, and wants the next one {length} steps later"
        for rank, step, length in (rows[0], other)
    ]
    raise MismatchError(
        f"the ranks average their parameters ({name!r}) after different steps: {'; '.join(said)}: give all "
        "ranks the same period and let them take the same steps, or use hvd.join_context for uneven data"
    )
