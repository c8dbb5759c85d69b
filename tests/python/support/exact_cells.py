"""Collective operations with exact answers: what every rank gives and what each must get, in plain torch.

All inputs are small integers that every rank can compute for all others, so that the answer is exact in every
dtype: sums and products fit bfloat16's 8 bits, and what is divided is rounded once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import roundelay.torch as hvd

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool")
PADDING = 77


def _sliced(values: torch.Tensor) -> torch.Tensor:
    buffer = values.new_full((*values.shape[:-1], 2 * values.shape[-1]), PADDING)
    return buffer[..., ::2].copy_(values)


def _offset(values: torch.Tensor) -> torch.Tensor:
    """Contiguous, but its memory begins at an odd element."""
    return values.new_full((values.numel() + 1,), PADDING)[1:].view(values.shape).copy_(values)


def _transposed(values: torch.Tensor) -> torch.Tensor:
    return values.transpose(0, -1).contiguous().transpose(0, -1)


@dataclass(frozen=True)
class Layout:
    """A shape, and how a tensor of it lies in memory."""

    shape: tuple[int, ...]
    place: Callable[[torch.Tensor], torch.Tensor] = torch.clone
    repeats_rows: bool = False


LAYOUTS = {
    "scalar": Layout(()),
    "empty": Layout((0,)),
    "one": Layout((1,)),
    "vector": Layout((17,)),
    "offset": Layout((9,), _offset),
    "matrix": Layout((3, 5)),
    "transposed": Layout((5, 3), _transposed),
    "sliced": Layout((4, 3), _sliced),
    "hollow": Layout((4, 0, 3)),
    "cube": Layout((2, 3, 4)),
    "channels_last": Layout(
        (2, 3, 2, 2), lambda values: values.to(memory_format=torch.channels_last).clone()
    ),
    "expanded": Layout((3, 4), lambda values: values[:1].clone().expand(values.shape), repeats_rows=True),
    "long": Layout((4099,)),
}


@dataclass(frozen=True)
class Form:
    """Which of an operation's functions is called."""

    asynchronous: bool = False
    in_place: bool = False
    grouped: bool = False


FORMS = {
    "plain": Form(),
    "in_place": Form(in_place=True),
    "async": Form(asynchronous=True),
    "async_in_place": Form(asynchronous=True, in_place=True),
    "grouped": Form(grouped=True),
    "grouped_in_place": Form(grouped=True, in_place=True),
    "grouped_async": Form(grouped=True, asynchronous=True),
    "grouped_async_in_place": Form(grouped=True, asynchronous=True, in_place=True),
}


@dataclass(frozen=True)
class Cell:
    """One call on every member of a set. `variant`: "root1", "uneven", "scaled" ..., by operation."""

    operation: str
    dtype: str
    layout: str
    form: str
    members: tuple[int, ...]
    op: str = ""
    variant: str = ""
    set: str = "world"

    @property
    def id(self) -> str:
        parts = (self.operation, self.op, self.variant, self.dtype, self.layout, self.form, self.set)
        return "-".join(part for part in parts if part)

    @property
    def tensors(self) -> list[tuple[str, str]]:
        """Dtype and layout of each tensor; a group has companions of another dtype and size."""
        own = [(self.dtype, self.layout)]
        return [*own, ("float32", "vector"), (self.dtype, "one")] if FORMS[self.form].grouped else own

    @property
    def root(self) -> int:
        return int(self.variant.removeprefix("root"))

    @property
    def factors(self) -> tuple[float, float]:
        """Before and after."""
        return (0.5, 2.0) if self.variant == "scaled" else (1.0, 1.0)

    def splits(self, member: int) -> list[int]:
        """Rows that the member with this index gives to each."""
        count = len(self.members)
        if self.variant == "even":
            return [2] * count
        return [(member + 2 * other + len(self.layout)) % 3 for other in range(count)]

    def sends_to_all(self, member: int) -> int:
        return sum(self.splits(member))


def _rows(cell: Cell, layout: str, member: int) -> int:
    own = LAYOUTS[layout].shape[0]
    if cell.operation == "alltoall":
        return cell.sends_to_all(member)
    if cell.operation == "allgather" and cell.variant == "uneven":
        return (own + 3 * member + 1) % 5
    return own


def _pattern(cell: Cell, index: torch.Tensor, member: int, seed: int, dtype: str) -> torch.Tensor:
    count = len(cell.members)
    mixed = index * 7 + member * 5 + seed
    if dtype == "bool":
        return (mixed % 3 > 0).long()
    if cell.op == "Product":
        return 1 + mixed % 2
    if cell.op == "Adasum":  # orthogonal: their Adasum is their sum
        return torch.where((index + seed) % count == member, mixed % 11 + 1, 0)
    if cell.variant == "scaled":
        return 2 * count * (mixed % 3)
    return mixed % 11 - (0 if dtype == "uint8" else 3)


def given(cell: Cell, member: int) -> list[torch.Tensor]:
    """What the member with this index gives, in int64."""
    values = []
    for number, (dtype, layout) in enumerate(cell.tensors):
        shape = LAYOUTS[layout].shape
        if cell.operation in ("allgather", "alltoall"):
            shape = (_rows(cell, layout, member), *shape[1:])
        seed = zlib.crc32(cell.id.encode()) % 1009 + number
        index = torch.arange(torch.Size(shape).numel()).reshape(shape)
        if LAYOUTS[layout].repeats_rows:
            index = index[:1].expand(shape)
        values.append(_pattern(cell, index, member, seed, dtype))
    return values


def _divided(values: torch.Tensor, dtype: str, divisor: int = 1) -> torch.Tensor:
    exact = values.double() / divisor
    return (exact if dtype in FLOATS else exact.trunc().long()).to(getattr(torch, dtype))


def _reduced(cell: Cell, parts: Sequence[torch.Tensor], dtype: str) -> torch.Tensor:
    stacked = torch.stack(list(parts))
    before, after = cell.factors
    if dtype == "bool":
        either = cell.op in ("Sum", "Max", "Adasum")
        return (stacked.amax(0) if either else stacked.amin(0)).bool()
    if cell.op in ("Sum", "Average", "Adasum"):
        total = (stacked * before * after).sum(0)
        return _divided(total, dtype, len(cell.members) if cell.op == "Average" else 1)
    reductions: dict[str, Callable[..., torch.Tensor]] = {
        "Min": torch.amin,
        "Max": torch.amax,
        "Product": torch.prod,
    }
    return _divided(reductions[cell.op](stacked, 0), dtype)


def _shard(whole: torch.Tensor, member: int, count: int) -> torch.Tensor:
    rows, more = divmod(whole.shape[0], count)
    begin = member * rows + min(member, more)
    return whole[begin : begin + rows + (member < more)]


def wanted(cell: Cell, member: int) -> list[torch.Tensor]:
    """What the member with this index must get, in the tensors' dtypes."""
    everyones = [given(cell, other) for other in range(len(cell.members))]
    result = []
    for number, (dtype, _) in enumerate(cell.tensors):
        parts = [values[number] for values in everyones]
        if cell.operation == "broadcast":
            whole = _divided(parts[cell.members.index(cell.root)], dtype)
        elif cell.operation == "allgather":
            whole = _divided(torch.cat(parts), dtype)
        elif cell.operation == "alltoall":
            pieces = [part.split(cell.splits(other))[member] for other, part in enumerate(parts)]
            whole = _divided(torch.cat(pieces), dtype)
        else:
            whole = _reduced(cell, parts, dtype)
            if cell.operation == "reducescatter":
                whole = _shard(whole, member, len(parts))
        result.append(whole)
    return result


def placed(cell: Cell, member: int) -> list[torch.Tensor]:
    """The member's tensors as they lie in memory."""
    return [
        LAYOUTS[layout].place(values.to(getattr(torch, dtype)))
        for (dtype, layout), values in zip(cell.tensors, given(cell, member), strict=True)
    ]


class Call:
    """This rank's part in a cell: started when made, `check()` waits for it and compares."""

    def __init__(self, cell: Cell, process_set: Any, name: str | None) -> None:
        self.cell = cell
        self.member = cell.members.index(hvd.rank())
        self.tensors = placed(cell, self.member)
        self.outcome = self._call(process_set, name)

    def _call(self, process_set: Any, name: str | None) -> Any:
        cell, form = self.cell, FORMS[self.cell.form]
        function = "grouped_" * form.grouped + cell.operation
        function += "_async" * form.asynchronous + "_" * form.in_place
        arguments: dict[str, Any] = {"name": name, "process_set": process_set}
        if cell.op:
            arguments["op"] = getattr(hvd, cell.op)
        if cell.variant == "scaled":
            arguments["prescale_factor"], arguments["postscale_factor"] = cell.factors
        if cell.operation == "broadcast":
            arguments["root_rank"] = cell.root
        if cell.operation == "alltoall" and cell.variant != "even":
            splits = self.cell.splits(self.member)
            arguments["splits"] = (
                splits if cell.variant == "list" else torch.tensor(splits, dtype=torch.int32)
            )
        call = getattr(hvd, function)
        return call(self.tensors if form.grouped else self.tensors[0], **arguments)

    def check(self) -> None:
        """Waits, where it is asynchronous. AssertionError: what is not as it must be."""
        cell, form = self.cell, FORMS[self.cell.form]
        outcome: Any = hvd.synchronize(self.outcome) if form.asynchronous else self.outcome
        if cell.operation == "alltoall" and (form.asynchronous or cell.variant != "even"):
            outcome, received = outcome
            rows = [cell.splits(other)[self.member] for other in range(len(cell.members))]
            assert received.dtype == torch.int32, received
            assert received.tolist() == rows, f"received splits {received.tolist()}, must be {rows}"
        results = outcome if form.grouped else [outcome]
        expected = wanted(cell, self.member)
        assert len(results) == len(expected)
        for result, right in zip(results, expected, strict=True):
            expect_equal(result, right)
        self._check_inputs(results)

    def _check_inputs(self, results: Sequence[torch.Tensor]) -> None:
        """In place: the given tensors, nothing beside them; otherwise they are as they were."""
        for tensor, result, before in zip(self.tensors, results, placed(self.cell, self.member), strict=True):
            if FORMS[self.cell.form].in_place:
                assert result is tensor, "in place must return the tensor itself"
                assert tensor.stride() == before.stride()
            else:
                expect_equal(tensor, before)
        _, layout = self.cell.tensors[0]
        if layout == "sliced":
            base = self.tensors[0]._base
            assert base is not None
            assert (base[..., 1::2] == torch.tensor(PADDING).to(base.dtype)).all(), "wrote beside the slice"


def expect_equal(result: torch.Tensor, right: torch.Tensor) -> None:
    assert result.dtype == right.dtype, f"got {result.dtype}, must be {right.dtype}"
    assert result.shape == right.shape, f"got shape {tuple(result.shape)}, must be {tuple(right.shape)}"
    if not torch.equal(result, right):
        where = (result != right).nonzero()[0].tolist()
        values = f"{result[tuple(where)].item()}, must be {right[tuple(where)].item()}"
        raise AssertionError(f"{int((result != right).sum())} elements are wrong, first at {where}: {values}")
