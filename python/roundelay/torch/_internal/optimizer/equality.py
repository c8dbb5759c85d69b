"""Finds values that differ between ranks: these compare digests and, where they differ, the values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set

import torch

from roundelay import _core
from roundelay.errors import MismatchError
from roundelay.torch._internal.optimizer.first_weights import FirstWeights
from roundelay.torch._internal.parameter_list import Row, difference, first_other, kind_of
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch.compression import Compression, Compressor
from roundelay.torch.functions import allgather_object
from roundelay.torch.process_sets import ProcessSet, set_id

Difference = tuple[int, tuple[int, bytes], tuple[int, bytes]]  # a field; two ranks, and their values

DIGEST_BYTES = 8
NO_DIGEST = bytes(DIGEST_BYTES)


def digest_of(text: str) -> bytes:
    """Returns DIGEST_BYTES bytes, which are never NO_DIGEST."""
    return b"\1" + hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES - 1).digest()


def mixed(digest: bytes, other: bytes) -> bytes:
    """Returns a digest that differs if one of two does."""
    number = int.from_bytes(digest, "big") ^ int.from_bytes(other, "big")
    return number.to_bytes(DIGEST_BYTES, "big")


def way_of(strategy: Strategy, compression: type[Compressor], weighted: bool) -> str:
    """Returns the text by which ranks compare how gradients are averaged: strategy, compression, weights."""
    text = strategy.text
    if compression is not Compression.none and strategy.wire is None:
        name = getattr(compression, "__name__", type(compression).__name__)  # it may be an object
        text = f"{text} with compression {name}"
    return f"{text} with weight=" if weighted else text


def check_ways(way: str, submitted: Set[str], prefix: str, process_set: ProcessSet) -> None:
    """Raises MismatchError, on all ranks, if an optimizer has other strategies on some. All ranks call it.

    way: this rank's way_of(). submitted: the names of operations in flight on this rank. Those that only
    some ranks have submitted fail with the same text. prefix: that of the optimizer's names.
    """
    rows = allgather_object((_core.rank(), way, sorted(submitted)), f"{prefix}.strategies", process_set)
    rank, first, _ = rows[0]
    other = next((row for row in rows if row[1] != first), None)
    if other is not None:
        text = (
            f"the strategies of an optimizer ({prefix!r}) differ between ranks: rank {rank} has {first!r}, "
            f"rank {other[0]} {other[1]!r}: give DistributedOptimizer the same strategy, "
            "compression and weight= on every rank"
        )
        fail({name for *_, names in rows for name in names} - submitted, text, process_set)
        raise MismatchError(text)


def digest_of_parameters(rows: Sequence[Row], way: str = "") -> bytes:
    """Returns the digest by which ranks compare an optimizer's parameters, and its way_of()."""
    return digest_of(repr((way, [tuple(row) for row in rows])))


def check_parameters(
    named: Mapping[str, torch.Tensor],
    prefix: str,
    process_set: ProcessSet,
    weights: FirstWeights | None = None,
) -> None:
    """Raises MismatchError, on all ranks, if these tensors are others on some. All ranks call it.

    named: in the canonical order. prefix: that of the optimizer's names. weights: compares their values too.
    """
    rows = [Row(name, *kind_of(tensor)) for name, tensor in named.items()]
    digest = digest_of_parameters(rows)
    due = weights is not None and weights.due
    fields = [(_core.Merge.EQUAL, digest), (_core.Merge.AND, bytes([due]))]
    agreed = _core.agree(f"{prefix}.equal", fields, -1, set_id(process_set))
    if agreed.differences:
        error = parameters_error(rows, set(), prefix, process_set)
        if error is not None:
            raise error
    if weights is not None:
        weights.compare(bool(agreed.values[-1]), lambda: named, prefix, process_set)


def parameters_error(
    rows: Sequence[Row], submitted: Set[str], prefix: str, process_set: ProcessSet
) -> MismatchError | None:
    """Returns the error to raise if the parameters of an optimizer differ between ranks. All ranks call it.

    submitted: the names of operations in flight on this rank. Those that only some ranks have submitted
    fail with the same text. None: the parameters are equal.
    """
    mine = (_core.rank(), rows, sorted(submitted))
    gathered = allgather_object(mine, f"{prefix}.parameters", process_set)
    pair = first_other([(rank, theirs) for rank, theirs, _ in gathered])
    if pair is None:
        return None
    text = (
        f"the parameters of an optimizer ({prefix!r}) differ between ranks: {difference(*pair)}: give "
        "DistributedOptimizer the same parameters, named_parameters and groups on every rank, and wrap "
        "several optimizers in the same order (is a layer frozen or left out on some ranks only?)"
    )
    fail({name for _, _, names in gathered for name in names} - submitted, text, process_set)
    return MismatchError(text)


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
    fail({name for _, _, names in gathered for name in names} - submitted, error, process_set)
    return MismatchError(error)


def fail(names: Set[str], error: str, process_set: ProcessSet) -> None:
    """Makes the operations of these names, which other ranks have submitted, fail with this text."""
    for name in sorted(names):
        _core.submit_error("allreduce", name, error, set_id(process_set))
