"""Sets of moments as ascending, disjoint (begin, end) pairs. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge: the moments that are in any of the intervals; empty and backward ones count as nothing."""
    merged: list[Interval] = []
    for begin, end in sorted(i for i in intervals if i[0] < i[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def clip(intervals: Iterable[Interval], begin: float, end: float) -> list[Interval]:
    """Keep the part between two moments."""
    return union((max(b, begin), min(e, end)) for b, e in intervals)


def subtract(intervals: Iterable[Interval], covered: Iterable[Interval]) -> list[Interval]:
    """Keep the moments of the first set that are not in the second."""
    left: list[Interval] = []
    holes = union(covered)
    first = 0
    for interval in union(intervals):
        begin, end = interval
        while first < len(holes) and holes[first][1] <= begin:
            first += 1
        for hole_begin, hole_end in holes[first:]:
            if hole_begin >= end:
                break
            if hole_begin > begin:
                left.append((begin, hole_begin))
            begin = max(begin, hole_end)
        if begin < end:
            left.append((begin, end))
    return left


def intersect(intervals: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """Keep the moments that are in both sets."""
    first = union(intervals)
    return subtract(first, subtract(first, others))


def total(intervals: Iterable[Interval]) -> float:
    """Measure how long all of them are together."""
    return sum(end - begin for begin, end in union(intervals))
