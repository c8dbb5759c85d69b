"""The values of an agreement round (gradient_sync.py): this rank's, and those of all, combined by Max."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from roundelay.errors import HorovodInternalError
from roundelay.torch.gradients.gradient import Gradient
from roundelay.torch.gradients.groups import GradientGroup
from roundelay.torch.optimizer.equality import DIGEST_BYTES

NAMES_SHOWN = 6  # an error names so many gradients at most
_DIGEST = slice(1, 1 + 2 * DIGEST_BYTES)


@dataclass(slots=True)
class Round:
    """An agreement round that has begun, and this rank's part in it."""

    handle: int | None  # None: end_round() submits the operation and waits
    values: bytearray  # this rank's; those of all ranks, combined by Max, replace them in the same memory
    submitted: list[int]  # one number for each group


class GroupResult(NamedTuple):
    """The result of an agreement round for one group."""

    group: GradientGroup
    submitted: int  # the times that the rank that did so most has submitted it
    kinds: bytes  # each gradient's kind (groups.py) where it is ready on some rank; 0: it is ready on none
    wanted: bytes  # 1 for each gradient that some rank wants


class Result(NamedTuple):
    """The result of an agreement round: equal on all ranks."""

    all_final: bool  # all ranks are in step()
    groups: list[GroupResult]
    plan: bytes  # the values of MasterWeights, then those of Techniques, then PoolPlan's


def values_of(
    final: bool,
    parameters: bytes,
    submitted: Sequence[int],
    groups: Sequence[GradientGroup],
    plan: Iterable[int],
) -> bytearray:
    """Returns this rank's values. parameters: their digest, both ways (equality.py). plan: as Result's."""
    kinds = [group.core.kinds() for group in groups]
    # A submitted group counts as seen, and its wanted bytes are skipped: zeros keep their places.
    wanted = [
        bytes(len(group.members)) if number else group.core.wanted()
        for group, number in zip(groups, submitted, strict=True)
    ]
    parts = [bytes([0 if final else 1]), parameters, bytes(submitted), *kinds, *wanted, bytes(plan)]
    return bytearray().join(parts)


def parameters_in(values: bytearray) -> bytes:
    """Returns the combined digests of the ranks' parameters: this rank's own, if all are equal."""
    return bytes(values[_DIGEST])


def result_of(values: bytes, groups: Iterable[GradientGroup]) -> Result:
    """Takes the combined values apart, by group."""
    every = list(groups)
    waiting = _DIGEST.stop + len(every)
    wanted = waiting + sum(len(group.members) for group in every)
    results = []
    begin = 0
    for group, submitted in zip(every, values[_DIGEST.stop : waiting], strict=True):
        end = begin + len(group.members)
        kinds = values[waiting + begin : waiting + end]
        results.append(GroupResult(group, submitted, kinds, values[wanted + begin : wanted + end]))
        begin = end
    return Result(values[0] == 0, results, values[wanted + begin :])


def naming_gradients(error: HorovodInternalError, members: Iterable[Gradient]) -> HorovodInternalError:
    """Returns the round's error with the names of those gradients for which the step waits."""
    names = [repr(gradient.name) for gradient in members if gradient.core.reductions]
    if not names:
        return error
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return HorovodInternalError(f"{error}; with it {', '.join(names[:NAMES_SHOWN])}{more}")
