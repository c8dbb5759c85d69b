"""Chooses the cuts of a gradient pool by a cost model. Pure.

The model is the overlap recursion of wait-free backpropagation. A bucket starts when its last gradient is
ready and the bucket before it is done, and takes alpha + beta * bytes. The model adds the time that
communication takes from backward: each bucket costs the training thread the time of a submit and, if ranks
keep all cores busy, the time that a core works for it (``Link.share`` of its time, which calibration.py
measures). Then fewer buckets are better. Times are seconds since a backward's first gradient.

Sources: lazy allreduce, GradientFlow (arXiv 1902.06855), section 4, has theta; the recursion is the one that
PyDTNN's performance model states. The smaller last bucket is the mirror image of the small first bucket of
PyTorch's DistributedDataParallel: nothing can hide the last bucket, so it is short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

_MIB = 1 << 20
_THETAS = tuple(1 << power for power in range(18, 28))  # 256 KiB to 128 MiB
_LAST_PARTS = (4, 16)  # a last bucket has at most theta divided by one of these
_WORTH = 0.1  # part of the communication time added by default: less is within the model's error


class Cuts(NamedTuple):
    """The sizes of a pool's buckets."""

    theta: int  # bytes that close a bucket
    last: int = 0  # most bytes of a last bucket with several gradients; 0: no such limit


DEFAULT = Cuts(16 * _MIB)


class Link(NamedTuple):
    """The cost of operations on a process set."""

    alpha: float  # seconds of an operation, however small
    beta: float  # seconds a byte
    submit: float = 0.0  # seconds of the training thread for each operation
    share: float = 0.0  # seconds that backward loses in a second of communication; 0: other cores do it
    copy: float = inf  # bytes a second of a copy in a rank's memory; inf: it counts for nothing


class Extent(NamedTuple):
    """A gradient's place in its pool, in bytes, and the time when it is ready."""

    begin: int
    end: int
    ready: float = 0.0


class Piece(NamedTuple):
    """A bucket: its size, and the time when its last gradient is ready."""

    bytes: int
    ready: float


class Candidate(NamedTuple):
    """Cuts, their number of buckets, and the predicted end of communication."""

    cuts: Cuts
    buckets: int
    predicted: float | None  # None: nothing was measured


def cut(extents: Sequence[Extent], cuts: Cuts, most: int) -> list[range]:
    """Returns the buckets as ranges of neighbours. Each takes gradients until it has theta bytes.

    most: most bytes of a bucket with several gradients; 0: each gradient is a bucket of its own.
    """
    last = _last_begin(extents, min(cuts.last, cuts.theta, most)) if cuts.last else -1
    begins: list[int] = []
    for index, extent in enumerate(extents):
        begin = extents[begins[-1]].begin if begins else 0
        full = extent.begin - begin >= cuts.theta or extent.end - begin > most
        if not begins or full or index == last:
            begins.append(index)
    return [range(*pair) for pair in zip(begins, [*begins[1:], len(extents)], strict=True)]


def _last_begin(extents: Sequence[Extent], bytes_: int) -> int:
    """Returns the first gradient of the last bucket, which has at most so many bytes or one gradient."""
    first = len(extents) - 1
    while first > 0 and extents[-1].end - extents[first - 1].begin <= bytes_:
        first -= 1
    return first


def pieces(pools: Sequence[Sequence[Extent]], cuts: Cuts, most: int) -> list[Piece]:
    """Returns the buckets of all pools, pool by pool. most: as for cut()."""
    return [
        Piece(pool[bucket[-1]].end - pool[bucket[0]].begin, max(pool[index].ready for index in bucket))
        for pool in pools
        for bucket in cut(pool, cuts, most)
    ]


def end_of(buckets: Sequence[Piece], durations: Sequence[float], link: Link) -> float:
    """Returns the time when communication and backward have ended. durations: seconds of each bucket."""
    lost = done = 0.0  # the time that communication took from backward; the time when the link is free
    last = 0.0
    for (_, last), duration in sorted(zip(buckets, durations, strict=True), key=lambda pair: pair[0].ready):
        lost += link.submit
        done = max(last + lost, done) + duration
        lost += link.share * duration
    return max(done, last + lost)


def predicted_end(pools: Sequence[Sequence[Extent]], cuts: Cuts, most: int, link: Link) -> float:
    """Returns the end of dense operations on all buckets. most: as for cut()."""
    buckets = pieces(pools, cuts, most)
    return end_of(buckets, [link.alpha + link.beta * bucket.bytes for bucket in buckets], link)


def candidates(pools: Sequence[Sequence[Extent]], most: int, link: Link | None) -> list[Candidate]:
    """Returns all cuts with different buckets, the best first; without a link the default, then by theta.

    pools: each pool's gradients. most: as for cut().
    """
    found: dict[tuple[tuple[range, ...], ...], Candidate] = {}
    for cuts in _ways(max(pool[-1].end for pool in pools), most):
        shape = tuple(tuple(cut(pool, cuts, most)) for pool in pools)
        if shape not in found:
            end = predicted_end(pools, cuts, most, link) if link else None
            found[shape] = Candidate(cuts, sum(map(len, shape)), end)
    every = list(found.values())
    return every if link is None else sorted(every, key=lambda one: one.predicted or 0.0)


def _ways(total: int, most: int) -> Iterator[Cuts]:
    """Yields the cuts to try. The default comes first: it wins over others with the same buckets."""
    yield DEFAULT
    for theta in _THETAS:
        yield Cuts(theta)
        for part in _LAST_PARTS:
            yield Cuts(theta, theta // part)
        if theta >= min(total, most):
            return


def choose(pools: Sequence[Sequence[Extent]], most: int, link: Link) -> Candidate:
    """Returns the cuts with the earliest predicted end, or the default if the gain is too small."""
    every = candidates(pools, most, link)
    best = every[0]
    default = next(one for one in every if one.cuts == DEFAULT)
    assert best.predicted is not None
    assert default.predicted is not None
    backward = max(extent.ready for pool in pools for extent in pool)
    added = default.predicted - backward
    return best if default.predicted - best.predicted > _WORTH * added else default


def out_of_place(turns: Sequence[int]) -> bool:
    """Returns whether a bucket was submitted before one that lies earlier in the pool, or without it.

    turns: the place of each bucket of the pool among those that were submitted, from 1 on; 0: it was not.
    """
    last, missing = 0, False
    for turn in turns:
        if turn == 0:
            missing = True
        elif missing or turn < last:
            return True
        else:
            last = turn
    return False
