"""Random programs of operations over several process sets, the same for all ranks from one seed.

A program is a list of windows of steps. A rank submits a window's steps in an order of its own, and waits,
inside a window and at its end, only for steps of windows that all ranks submit without waiting for it: so no
program of these can deadlock by itself. Unnamed steps of one operation and set keep their order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from exact_cells import DTYPES, FLOATS, FORMS, LAYOUTS, Cell

OPERATIONS = 200
ALLREDUCE_OPS = ("Average", "Sum", "Min", "Max", "Product", "Adasum")
FAULTS = ("dtype", "shape", "mistake")


@dataclass(frozen=True)
class Step:
    """`name` None: unnamed. `fault`: what is wrong on the world rank `culprit`, "": nothing."""

    number: int
    cell: Cell
    name: str | None
    fault: str = ""
    culprit: int = -1

    @property
    def chain(self) -> tuple[str, tuple[int, ...]] | None:
        """Steps of one chain must be submitted in their order."""
        return None if self.name is not None else (self.cell.operation, self.cell.members)


@dataclass(frozen=True)
class Program:
    """`sets`: the members of each, the world first. `joins`: windows of further allreduces before joining."""

    seed: int
    size: int
    sets: list[tuple[int, ...]]
    windows: list[list[Step]]
    barriers: list[list[int]]  # after each window: the sets that have one
    extra: list[int]  # by rank: how many more steps it takes before it joins; empty: nobody joins


def _sets(rng: random.Random, size: int) -> list[tuple[int, ...]]:
    everyone = tuple(range(size))
    subsets = [each for count in range(1, size) for each in combinations(everyone, count)]
    return [everyone, *rng.sample(subsets, min(len(subsets), 4))]


def _layout(rng: random.Random, operation: str, form: str) -> str:
    layouts = [
        name
        for name, layout in LAYOUTS.items()
        if (layout.shape or operation in ("allreduce", "broadcast"))
        and not (FORMS[form].in_place and layout.repeats_rows)
    ]
    return rng.choice(layouts)


def _cell(rng: random.Random, members: tuple[int, ...]) -> Cell:
    operation = rng.choice(["allreduce", "allreduce", "allgather", "broadcast", "alltoall", "reducescatter"])
    forms = {
        "allreduce": ["async", "async_in_place", "grouped_async", "grouped_async_in_place"],
        "broadcast": ["async", "async_in_place"],
        "alltoall": ["async"],
    }
    form = rng.choice(forms.get(operation, ["async", "grouped_async"]))
    ops = {"allreduce": ALLREDUCE_OPS, "reducescatter": ("Average", "Sum")}
    op = rng.choice(ops.get(operation, ("",)))
    dtypes = FLOATS if op == "Adasum" else [each for each in DTYPES if (each, op) != ("bool", "Average")]
    variants = {
        "allgather": ["even", "uneven"],
        "alltoall": ["even", "list", "tensor"],
        "broadcast": [f"root{root}" for root in members],
    }
    variant = rng.choice(variants.get(operation, [""]))
    layout = _layout(rng, operation, form)
    return Cell(operation, rng.choice(dtypes), layout, form, members, op, variant, f"set{members}")


class _Names:
    """Most steps are named, some again after a while: what the response cache is for."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.used: list[list[tuple[str, Cell]]] = []  # by window

    def next(self, number: int, cell: Cell) -> tuple[str | None, Cell]:
        if self.rng.random() < 0.25:
            return None, cell
        free = self.used[-3] if len(self.used) >= 3 else []
        if free and self.rng.random() < 0.6:
            return free.pop(self.rng.randrange(len(free)))
        return f"step.{number}", cell


def make_program(seed: int, size: int, faults: bool, joins: bool) -> Program:
    """The same on all ranks."""
    rng = random.Random(seed * 8 + size)
    sets = _sets(rng, size)
    names = _Names(rng)
    windows: list[list[Step]] = []
    barriers: list[list[int]] = []
    number = 0
    while number < OPERATIONS:
        window: list[Step] = []
        names.used.append([])
        for _ in range(min(rng.randint(1, 40), OPERATIONS - number)):
            name, cell = names.next(number, _cell(rng, rng.choice(sets)))
            fault = rng.choice(FAULTS) if faults and len(cell.members) > 1 and rng.random() < 0.1 else ""
            culprit = rng.choice(cell.members) if fault else -1
            window.append(Step(number, cell, name, fault, culprit))
            if name is not None:
                names.used[-1].append((name, cell))
            number += 1
        windows.append(window)
        barriers.append([index for index in range(len(sets)) if rng.random() < 0.1])
    extra = rng.sample(range(3 * size), size) if joins else []
    return Program(seed, size, sets, windows, barriers, extra)


def order_on(rank: int, program: Program, window: Sequence[Step]) -> list[Step]:
    """The order in which this rank submits its steps of a window."""
    rng = random.Random(program.seed * 64 + rank * 8 + window[0].number * 1024)
    mine = [step for step in window if rank in step.cell.members]
    shuffled = rng.sample(mine, len(mine))
    chains = {step.chain: [each for each in mine if each.chain == step.chain] for step in mine if step.chain}
    return [chains[step.chain].pop(0) if step.chain else step for step in shuffled]
