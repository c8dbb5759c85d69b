"""``hvd.topology()``: the levels of the job, from nodes to racks and beyond."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from roundelay import _core


@dataclass(frozen=True)
class Part:
    """One node, or one rack ..., and its ranks, ascending."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Level:
    """All parts of one kind ("node", "rack" ...). Each rank is in one of them."""

    name: str
    parts: tuple[Part, ...]  # ascending by their first ranks


@dataclass(frozen=True)
class Topology:
    """The job's levels: each part lies within one part of the next level. It prints as a tree."""

    levels: tuple[Level, ...]  # innermost first; the first one has the nodes

    def __str__(self) -> str:
        """Returns the numbers of parts, then a line for each part, indented below the part around it."""
        ranks = sum(len(part.ranks) for part in self.levels[0].parts)
        counts = [_count(ranks, "rank"), *(_count(len(level.parts), level.name) for level in self.levels)]
        everything = frozenset(range(ranks))
        return "\n".join([", ".join(counts), *self._lines(len(self.levels) - 1, everything, "  ")])

    def _lines(self, level: int, within: frozenset[int], indent: str) -> Iterator[str]:
        for part in self.levels[level].parts:
            if part.ranks[0] not in within:
                continue
            line = f"{indent}{self.levels[level].name} {part.name}"
            if level == 0:
                yield f"{line}: {'rank' if len(part.ranks) == 1 else 'ranks'} {_ranges(part.ranks)}"
            else:
                yield line
                yield from self._lines(level - 1, frozenset(part.ranks), indent + "  ")


def topology() -> Topology:
    """Returns the levels of the job's ranks, the same on all of them. ValueError before ``init``."""
    return Topology(
        tuple(
            Level(name, tuple(Part(part, tuple(ranks)) for part, ranks in parts))
            for name, parts in _core.topology()
        )
    )


def _count(number: int, name: str) -> str:
    return f"1 {name}" if number == 1 else f"{number} {name}s"


def _ranges(ranks: Sequence[int]) -> str:
    """Returns ascending numbers with each run of three or more as its ends: ``0, 2, 4-7``."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = (f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
    return ", ".join(words)
