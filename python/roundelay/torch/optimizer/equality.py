"""Tells ranks that have unequal values: digests travel with other values and are combined by Max."""

from __future__ import annotations

import hashlib
from collections.abc import Set

from roundelay import _core
from roundelay.errors import MismatchError
from roundelay.torch.functions import allgather_object
from roundelay.torch.process_sets import ProcessSet, set_id

DIGEST_BYTES = 8
NO_DIGEST = bytes(DIGEST_BYTES)


def digest_of(text: str) -> bytes:
    """Returns DIGEST_BYTES bytes, which are never NO_DIGEST."""
    return b"\1" + hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES - 1).digest()


def both_ways(digest: bytes) -> bytes:
    """Returns the digest and its complement, whose largest values tell whether all ranks have the same."""
    return digest + bytes(255 - byte for byte in digest)


def equal(combined: bytes) -> bool:
    """Returns whether all ranks had the same digest, from what both_ways() returned, combined by Max."""
    most, least = combined[:DIGEST_BYTES], combined[DIGEST_BYTES:]
    return all(255 - high == low for high, low in zip(most, least, strict=True))


def check_strategies(text: str, prefix: str, process_set: ProcessSet) -> None:
    """Raises MismatchError, on all ranks, if an optimizer has other strategies on some. All ranks call it.

    text: of this rank's strategy. prefix: that of the optimizer's names.
    """
    rows = allgather_object((_core.rank(), text), f"{prefix}.strategies", process_set)
    rank, first = rows[0]
    other = next((row for row in rows if row[1] != first), None)
    if other is not None:
        raise MismatchError(
            f"the strategies of an optimizer ({prefix!r}) differ between ranks: rank {rank} has {first!r}, "
            f"rank {other[0]} {other[1]!r}: give DistributedOptimizer the same strategy on every rank"
        )


def loaded_error(
    digest: bytes, text: str, submitted: Set[str], prefix: str, process_set: ProcessSet
) -> MismatchError | None:
    """Returns the error to raise if the ranks have loaded states of different checkpoints. All ranks call it.

    digest: of this rank's state, or NO_DIGEST. text: of the strategy. submitted: the names of this step's
    operations on this rank. Those that only some ranks have submitted fail with the same text. prefix: that
    of the optimizer's names. None: the states belong together.
    """
    mine = (_core.rank(), digest, sorted(submitted))
    gathered = allgather_object(mine, f"{prefix}.loaded", process_set)
    rank, first, _ = gathered[0]
    other = next((row for row in gathered if row[1] != first), None)
    if other is None:
        return None
    ours = "none" if first == NO_DIGEST else "one"
    theirs = "none" if other[1] == NO_DIGEST else "one" if first == NO_DIGEST else "another"
    error = (
        f"the ranks have loaded states of strategy {text} that do not belong together, or some ranks none "
        f"({prefix!r}: rank {rank} has {ours}, rank {other[0]} {theirs}), and forget them: load the state of "
        "one checkpoint on every rank"
    )
    everywhere = {name for _, _, names in gathered for name in names}
    for name in sorted(everywhere - submitted):
        _core.submit_error("allreduce", name, error, set_id(process_set))
    return MismatchError(error)
