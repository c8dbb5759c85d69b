"""Brings partial results together in the order of the shard tree, and gives every rank the total."""

from __future__ import annotations

from collections.abc import Callable

import torch

import roundelay.torch as hvd
from roundelay.algorithms.errors import FaultHere
from roundelay.algorithms.shard_tree import Node, Plan, Round
from roundelay.algorithms.trees import Layout, bytes_of

Tensors = list[torch.Tensor]  # the leaves of one partial result
Combine = Callable[[Tensors, Tensors, int], Tensors]  # the third argument: the second value's first shard

ALIGNMENT = 64  # bytes, as torch aligns its memory: tensors at such places are computed with alike


class Reduction:
    """Carries out a plan, step after step: rounds of moves up the tree, then one broadcast from rank 0.

    The bytes of partial results move, so that any dtype comes as it left. A flag after them says whether the
    value's rank had a fault. A rank with a fault sends zeros, as the others wait for it.
    """

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self._plan, self._device = plan, device
        self._rank, self._size = hvd.rank(), hvd.size()
        self._buffer = torch.empty(0, dtype=torch.uint8, device=device)  # memory of this rank's messages

    def total(
        self, values: dict[Node, Tensors], layout: Layout, combine: Combine
    ) -> tuple[Tensors | None, FaultHere | None]:
        """Returns the total, on every rank, or None if some rank had a fault; and this rank's own fault.

        values: the roots of this rank's share.
        """
        fault: FaultHere | None = None
        wire = Wire(layout)
        known: dict[Node, Tensors | None] = dict(values)
        for number, round_ in enumerate(self._plan.rounds):
            self._move(known, round_, wire, f"algorithms.up.{number}")
            for _, node in (one for one in round_.combinations if one.rank == self._rank):
                first, second = (known.pop(child) for child in node.children)
                known[node] = None
                if first is not None and second is not None and fault is None:
                    try:
                        known[node] = combine(first, second, node.children[1].begin)
                    except FaultHere as here:
                        fault = here
        total = known.get(self._plan.whole)
        return (total if self._size == 1 else self._broadcast(total, wire)), fault

    def _move(self, known: dict[Node, Tensors | None], round_: Round, wire: Wire, name: str) -> None:
        mine = sorted((move.receiver, move.node) for move in round_.moves if move.sender == self._rank)
        outgoing = self._memory(len(mine), wire.bytes)
        splits = [0] * self._size
        for row, (receiver, node) in zip(outgoing, mine, strict=True):
            wire.pack(known.pop(node), row)
            splits[receiver] += 1
        incoming, _ = hvd.alltoall(outgoing, splits, name=name)
        theirs = sorted((move.sender, move.node) for move in round_.moves if move.receiver == self._rank)
        for row, (_, node) in zip(incoming, theirs, strict=True):
            known[node] = wire.unpacked(row)

    def _memory(self, rows: int, bytes_: int) -> torch.Tensor:
        """Returns uninitialised memory for operations that end before it is asked for again."""
        if self._buffer.numel() < rows * bytes_:
            self._buffer = torch.empty(rows * bytes_, dtype=torch.uint8, device=self._device)
        return self._buffer[: rows * bytes_].view(rows, bytes_)

    def _broadcast(self, total: Tensors | None, wire: Wire) -> Tensors | None:
        if self._rank == 0:
            row = self._memory(1, wire.bytes)[0]
            wire.pack(total, row)
        else:
            row = torch.empty(wire.bytes, dtype=torch.uint8, device=self._device)  # the total will lie in it
        hvd.broadcast_(row, 0, name="algorithms.down")
        return total if self._rank == 0 else wire.unpacked(row)


class Wire:
    """A partial result as a row of bytes: its leaves at multiples of ALIGNMENT, and a flag at the end."""

    def __init__(self, layout: Layout) -> None:
        self._shapes = layout.shapes
        self._begins = []
        self.bytes = 0
        for shape in layout.shapes:
            self._begins.append(self.bytes)
            self.bytes += -(-shape.bytes // ALIGNMENT) * ALIGNMENT
        self.bytes += ALIGNMENT  # room of the flag, which is one byte

    def pack(self, value: Tensors | None, row: torch.Tensor) -> None:
        """Writes a value; None stands for a rank's fault."""
        row[-ALIGNMENT:] = value is None
        if value is None:
            row[:-ALIGNMENT] = 0
            return
        for begin, leaf in zip(self._begins, value, strict=True):
            row[begin : begin + leaf.nbytes] = bytes_of(leaf)

    def unpacked(self, row: torch.Tensor) -> Tensors | None:
        """Returns the value, whose tensors are views of the row; None for a rank's fault."""
        if row[-1]:
            return None
        return [
            row[begin : begin + shape.bytes].view(shape.dtype).view(shape.size)
            for begin, shape in zip(self._begins, self._shapes, strict=True)
        ]
