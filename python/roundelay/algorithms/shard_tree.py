"""The order in which partial results are combined: a binary tree over the shards, the same for any ranks.

A node is a range of shards; its left child has the largest power of two of them that leaves some for the
right one. A rank evaluates a share, which is shards in a row, and combines the nodes within it alone. A node
with shards of several ranks belongs to the rank of its first shard, to which the right child's value
moves. So rank 0 gets the total, and each boundary between ranks costs at most one move for each level of the
tree. If ranks and shards are powers of two, it is the binomial tree.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Node(NamedTuple):
    """The shards from ``begin`` up to ``end``, which is not among them."""

    begin: int
    end: int

    @property
    def children(self) -> tuple[Node, Node]:
        """Returns the two parts of a node of two or more shards."""
        middle = self.begin + (1 << (self.end - self.begin - 1).bit_length() - 1)
        return Node(self.begin, middle), Node(middle, self.end)


class Move(NamedTuple):
    """One value on its way between two ranks."""

    sender: int
    receiver: int
    node: Node


class Combination(NamedTuple):
    """A node with shards of several ranks; ``rank`` combines its children."""

    rank: int
    node: Node


@dataclass(frozen=True)
class Round:
    """Moves of all ranks, which travel at the same time, and the combinations that follow them."""

    moves: list[Move] = field(default_factory=list)
    combinations: list[Combination] = field(default_factory=list)  # children come before parents


def shares(shards: int, ranks: int) -> list[Node]:
    """Returns each rank's share of the shards.

    Shares differ by one shard at most. With fewer shards than ranks some are empty, but never that of rank 0.
    """
    begins = [-(-rank * shards // ranks) for rank in range(ranks + 1)]
    return [Node(*pair) for pair in itertools.pairwise(begins)]


@dataclass(frozen=True)
class Plan:
    """The order in which ``ranks`` combine ``shards``. It depends on the two numbers alone."""

    whole: Node
    rounds: list[Round]

    @classmethod
    def of(cls, shards: int, ranks: int) -> Plan:
        """Returns the plan for these numbers, each at least 1."""
        begins = [share.begin for share in shares(shards, ranks)]
        whole = Node(0, shards)
        rounds: list[Round] = []

        def add(node: Node) -> int:
            """Adds the node and its children; returns the number of rounds that its value needs."""
            if owner(begins, node.begin) == owner(begins, node.end - 1):
                return 0
            left, right = node.children
            receiver, sender = owner(begins, left.begin), owner(begins, right.begin)
            ready, depth = add(left), add(right)
            if sender != receiver:
                _at(rounds, depth).moves.append(Move(sender, receiver, right))
                depth += 1
            depth = max(ready, depth)
            _at(rounds, depth - 1).combinations.append(Combination(receiver, node))
            return depth

        add(whole)
        return cls(whole, rounds)

    def roots(self, share: Node) -> Iterator[Node]:
        """Yields the largest nodes within a rank's share, in order."""
        yield from _within(self.whole, share)


def owner(begins: Sequence[int], shard: int) -> int:
    """Returns the rank that has the shard; ``begins`` has the first shard of each rank's share."""
    return bisect_right(begins, shard) - 1


def _at(rounds: list[Round], index: int) -> Round:
    while len(rounds) <= index:
        rounds.append(Round())
    return rounds[index]


def _within(node: Node, share: Node) -> Iterator[Node]:
    if share.begin >= node.end or share.end <= node.begin or share.begin == share.end:
        return
    if share.begin <= node.begin and node.end <= share.end:
        yield node
        return
    for child in node.children:
        yield from _within(child, share)
