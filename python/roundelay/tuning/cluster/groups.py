"""The groups of ranks to measure, by level. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roundelay.tuning.file import GPU, Level

OUTERMOST = "cluster"
# A level of a topology: its name, and its parts' ranks, ascending (hvd.topology()).
Parts = tuple[str, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class Series:
    """Groups of one level that are measured together, because an operation over levels uses them together."""

    level: str
    groups: tuple[tuple[int, ...], ...]  # each has two ranks or more; they share no rank

    @property
    def ranks(self) -> int:
        """The number of ranks in the largest group."""
        return max(len(group) for group in self.groups)


def levels(topology: Sequence[Parts]) -> tuple[Level, ...]:
    """Returns the levels that join several members, innermost first, with the members of their largest parts.

    topology: innermost first; the first level has the nodes.
    """
    members = [
        (name, max(len(_within(part, inner)) for part in parts)) for name, parts, inner in _all(topology)
    ]
    return tuple(Level(name, most) for name, most in members if most > 1)


def between(topology: Sequence[Parts]) -> list[Series]:
    """Returns the series of all levels beyond the nodes, and one of all ranks as a single group.

    A level's groups have one rank of each part that it joins: all the first ones, all the second ones ...
    Larger levels are also measured with half of their members, a quarter and so on.
    """
    found = []
    for name, parts, inner in list(_all(topology))[1:]:
        whole = [group for part in parts for group in _columns(_within(part, inner))]
        members = max((len(group) for group in whole), default=0)
        if members > 1:
            found.append(Series(name, tuple(whole)))
        while (members := members // 2) > 1:
            found.append(Series(name, tuple(group[:members] for group in whole if len(group) >= members)))
    everyone = tuple(sorted(rank for part in topology[0][1] for rank in part))
    if len(topology[0][1]) > 1 and all(everyone not in series.groups for series in found):
        found.append(Series(OUTERMOST if len(topology[-1][1]) > 1 else topology[-1][0], (everyone,)))
    return found


def senders(topology: Sequence[Parts]) -> dict[str, float]:
    """Returns for each level beyond the nodes the share of a largest part's ranks that have a group.

    It is below 1 where parts have different numbers of ranks: the last ranks of a larger one have no peers.
    """
    shares = {}
    for name, parts, inner in list(_all(topology))[1:]:
        joined = [_within(part, inner) for part in parts]
        largest = max(len(one) for within in joined for one in within)
        shares[name] = max(len(_columns(within)) for within in joined) / largest or 1.0
    return shares


def on_gpus(ranks: int) -> list[Series]:
    """Returns the series of all ranks on their GPUs, as one group, of half of them, a quarter and so on."""
    found = []
    while ranks > 1:
        found.append(Series(GPU, (tuple(range(ranks)),)))
        ranks //= 2
    return found


def inside(topology: Sequence[Parts]) -> Series | None:
    """Returns the series of the ranks in each node; None if no node has two."""
    groups = tuple(part for part in topology[0][1] if len(part) > 1)
    return Series(topology[0][0], groups) if groups else None


def _all(
    topology: Sequence[Parts],
) -> list[tuple[str, tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]]:
    """Returns each level's name, its parts, and the parts that it joins: ranks, nodes, racks ..."""
    everyone = tuple(sorted(rank for part in topology[0][1] for rank in part))
    named = [*topology, (OUTERMOST, (everyone,))]
    joined = [tuple((rank,) for rank in everyone), *(parts for _, parts in topology)]
    return [(name, parts, inner) for (name, parts), inner in zip(named, joined, strict=True)]


def _within(part: tuple[int, ...], inner: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    members = set(part)
    return [one for one in inner if one[0] in members]


def _columns(joined: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Returns a group of the first ranks of all joined parts, one of the second ranks, and so on.

    A group has two ranks at least.
    """
    most = max(len(part) for part in joined)
    columns = [tuple(sorted(part[i] for part in joined if i < len(part))) for i in range(most)]
    return [column for column in columns if len(column) > 1]
