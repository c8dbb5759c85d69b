"""Compares the weights with which the ranks begin to train an optimizer's parameters.

Gradients are equal on all ranks; weights stay different if they were so before the first step. Each rank
makes a number of each parameter, of values at the same places, and the ranks compare one digest of these
numbers. A thousand values of a parameter are enough: weights that nobody has made equal differ in nearly all.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch

from roundelay import _core
from roundelay.torch.functions import allgather_object
from roundelay.torch.process_sets import ProcessSet, set_id

_DIGEST_BYTES = 8
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SAMPLES = 1024  # of a parameter: at least so many values, and at most twice as many
_RANKS_NAMED = 8

Sums = dict[str, int]  # by the parameters' names


class Unequal(NamedTuple):
    """Parameters that have other values on some ranks than on the first one that was compared."""

    first_name: str  # of a parameter of which that is true
    others: list[int]  # on which it has other values
    first: int
    unequal: int  # the number of such parameters
    of: int

    @property
    def ranks(self) -> str:
        """The others, for the beginning of a text."""
        shown = ", ".join(map(str, self.others[:_RANKS_NAMED]))
        return f"rank{'s'[: len(self.others) > 1]} {shown}{' ...' if len(self.others) > _RANKS_NAMED else ''}"


class FirstWeights:
    """Compares once: in the first round or step of an optimizer in which ranks take part that have not yet.

    due: this rank has not. Ranks merge it with Merge.AND, as a rank may have joined when the others compared.
    """

    def __init__(self) -> None:
        self.due = _core.config().check_weights

    def compare(
        self,
        all_due: bool,
        parameters: Callable[[], Mapping[str, torch.Tensor]],
        prefix: str,
        process_set: ProcessSet,
    ) -> None:
        """Warns on the first rank of the set if weights differ. All ranks call it, with the merged value.

        parameters: returns them by name. prefix: that of the optimizer's names.
        """
        if not self.due:
            return
        self.due = False
        if not all_due:
            return
        named = parameters()
        sums = {} if _captures(named.values()) else sums_of(named)
        digest = hashlib.blake2b(repr(sorted(sums.items())).encode(), digest_size=_DIGEST_BYTES).digest()
        agreed = _core.agree(f"{prefix}.weights", [(_core.Merge.EQUAL, digest)], -1, set_id(process_set))
        if agreed.differences:
            rows = allgather_object((_core.rank(), sums), f"{prefix}.weights", process_set)
            found = unequal(rows)
            if found is not None and _core.rank() == rows[0][0]:
                warnings.warn(warning(found, prefix), RuntimeWarning, stacklevel=2)


def sums_of(named: Mapping[str, torch.Tensor]) -> Sums:
    """Returns a number for each parameter that has values. A GPU is waited for once."""
    by_device: defaultdict[torch.device, dict[str, torch.Tensor]] = defaultdict(dict)
    for name, parameter in named.items():
        if torch.nn.parameter.is_lazy(parameter):
            continue
        values = parameter.detach()
        if type(values) is torch.Tensor and values.layout == torch.strided:
            by_device[parameter.device][name] = _sum_of(values)
    sums: Sums = {}
    for of_device in by_device.values():
        sums.update(zip(of_device, torch.stack(list(of_device.values())).tolist(), strict=True))
    return sums


def _sum_of(values: torch.Tensor) -> torch.Tensor:
    """Returns the sum of some of the values, taken as integers. They may lie in memory in any way."""
    real = torch.view_as_real(values) if values.is_complex() else values
    integers = real.view(_INTEGERS[real.element_size()])
    step = integers.numel() // _SAMPLES
    if step > 1:
        integers = integers.take(torch.arange(0, integers.numel(), step, device=integers.device))
    return integers.sum()


def _captures(parameters: Iterable[torch.Tensor]) -> bool:
    """Returns whether a CUDA graph is being captured, in which nothing may wait for the GPU."""
    return any(one.is_cuda for one in parameters) and torch.cuda.is_current_stream_capturing()


def unequal(rows: Sequence[tuple[int, Sums]]) -> Unequal | None:
    """Returns how weights differ; None: ranks that have sums have the same. rows: ranks and their sums."""
    rows = [row for row in rows if row[1]]
    first, sums = rows[0] if rows else (0, {})
    names = [name for name in sums if any(theirs.get(name) != sums[name] for _, theirs in rows)]
    if not names:
        return None
    others = [rank for rank, theirs in rows if theirs.get(names[0]) != sums[names[0]]]
    return Unequal(names[0], others, first, len(names), len(sums))


def warning(found: Unequal, prefix: str) -> str:
    """Returns the warning to give before the first step. prefix: that of the optimizer's names."""
    begin = "begins" if len(found.others) == 1 else "begin"
    return (
        f"{found.ranks} {begin} with other values of parameter {found.first_name!r} than rank {found.first} "
        f"({found.unequal} of the {found.of} parameters of optimizer {prefix!r} differ), and the weights "
        "will stay different: call hvd.broadcast_parameters(model.state_dict(), root_rank=0) before the "
        "first step. If they are to differ, set ROUNDELAY_CHECK_WEIGHTS=0"
    )
