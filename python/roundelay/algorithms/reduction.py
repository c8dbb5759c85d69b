"""Brings partial results together in the order of the shard tree, and gives every rank the total."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import roundelay.torch as hvd
from roundelay.algorithms.errors import FaultHere
from roundelay.algorithms.shard_tree import Node, Plan, Round
from roundelay.algorithms.trees import Layout, bytes_of, leaves, rebuilt

Combine = Callable[[Any, Any, int], Any]  # the third argument: the first shard of the second


class Reduction:
    """Carries out a plan, step after step: rounds of moves up the tree, then one broadcast from rank 0.

    The bytes of partial results move, so that any dtype comes as it left. Each value has one byte more, which
    says whether its rank had a fault. A rank with a fault sends zeros, as the others wait for it.
    """

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self._plan, self._device = plan, device
        self._rank, self._size = hvd.rank(), hvd.size()

    def total(
        self, values: dict[Node, Any], layout: Layout, combine: Combine
    ) -> tuple[Any, FaultHere | None]:
        """Returns the total, on every rank, or None if some rank had a fault; and this rank's own fault.

        values: the roots of this rank's share; this empties it.
        """
        fault: FaultHere | None = None
        for number, round_ in enumerate(self._plan.rounds):
            self._move(values, round_, layout, f"algorithms.up.{number}")
            for rank, node in round_.meetings:
                if rank != self._rank:
                    continue
                first, second = (values.pop(child) for child in node.children)
                values[node] = None
                if first is not None and second is not None and fault is None:
                    try:
                        values[node] = combine(first, second, node.children[1].begin)
                    except FaultHere as here:
                        fault = here
        total = values.pop(self._plan.whole, None)
        return (total if self._size == 1 else self._broadcast(total, layout)), fault

    def _move(self, values: dict[Node, Any], round_: Round, layout: Layout, name: str) -> None:
        each = layout.bytes + 1
        mine = [move for move in round_.moves if move.sender == self._rank]
        mine.sort(key=lambda move: (move.receiver, move.node))
        outgoing = torch.empty(len(mine), each, dtype=torch.uint8, device=self._device)
        splits = [0] * self._size
        for row, move in zip(outgoing, mine, strict=True):
            _pack(values.pop(move.node), row)
            splits[move.receiver] += 1
        incoming, _ = hvd.alltoall(outgoing, splits, name=name)
        theirs = [move for move in round_.moves if move.receiver == self._rank]
        theirs.sort(key=lambda move: (move.sender, move.node))
        for row, move in zip(incoming, theirs, strict=True):
            values[move.node] = _unpacked(row, layout)

    def _broadcast(self, total: Any, layout: Layout) -> Any:
        row = torch.empty(layout.bytes + 1, dtype=torch.uint8, device=self._device)
        if self._rank == 0:
            _pack(total, row)
        hvd.broadcast_(row, 0, name="algorithms.down")
        if self._rank != 0:
            return _unpacked(row, layout)
        return total


def _pack(value: Any, row: torch.Tensor) -> None:
    """Writes the value's bytes, and 0; for None zeros, and 1."""
    row[-1] = value is None
    if value is None:
        row[:-1] = 0
        return
    begin = 0
    for _, leaf in leaves(value):
        row[begin : begin + leaf.nbytes] = bytes_of(leaf)
        begin += leaf.nbytes


def _unpacked(row: torch.Tensor, layout: Layout) -> Any:
    """Returns the value with memory of its own, as ``settled`` would; None if its rank had a fault."""
    if row[-1]:
        return None
    begin = 0

    def leaf(_: str, shape: Any) -> torch.Tensor:
        nonlocal begin
        made = torch.empty(shape.size, dtype=shape.dtype, device=row.device)
        bytes_of(made).copy_(row[begin : begin + shape.bytes])
        begin += shape.bytes
        return made

    return rebuilt(layout.tree, leaf)
