"""Every operation x dtype x layout x form x set at 1 to 4 ranks: each answer is exact.

A failing cell prints its id and the command that repeats it alone (MATRIX_CELL is a pattern of ids).
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

import roundelay.torch as hvd
from exact_cells import DTYPES, FLOATS, FORMS, LAYOUTS, Call, Cell
from ranks import Check, mpirun, run_check

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

AT_ONCE = 64  # cells in flight together
WITH_ROWS = [layout for layout, kind in LAYOUTS.items() if kind.shape]
ALL_FORMS = list(FORMS)
OUT_OF_PLACE = [name for name, form in FORMS.items() if not form.in_place]
FORMS_IN_A_SET = ["plain", "async_in_place", "grouped_async"]
FEW_LAYOUTS = ["scalar", "empty", "vector", "transposed", "sliced", "expanded"]


@pytest.mark.parametrize("np", [1, 2, pytest.param(3, marks=pytest.mark.nightly), 4])
def test_matrix(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.slow
def test_on_nodes_of_their_own(check: Check) -> None:
    """Three ranks that take each other for other nodes: what goes between nodes, with part of the cells."""
    env = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1", "MATRIX_CELL": os.environ.get("MATRIX_CELL", "*async-*")}
    run_check(check, 3, env=env, each="ROUNDELAY_NODE_ID=$OMPI_COMM_WORLD_RANK")


def test_the_matrix_is_large() -> None:
    tables = [cells(np) for np in (1, 2, 3, 4)]
    assert all(len({cell.id for cell in table}) == len(table) for table in tables)
    assert sum(len(table) for table in tables) >= 5000


def of_set(forms: list[str], np: int) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Forms with the world, and some with the set of all but rank 0."""
    for form in forms:
        yield form, tuple(range(np)), "world"
        if np > 1 and form in FORMS_IN_A_SET:
            yield form, tuple(range(1, np)), "tail"


def may_be(form: str, layout: str) -> bool:
    """Elements of an expanded tensor share memory: it cannot take a result."""
    return not (FORMS[form].in_place and LAYOUTS[layout].repeats_rows)


def allreduce_cells(np: int) -> Iterator[Cell]:
    layouts = {
        "Sum": list(LAYOUTS),
        **dict.fromkeys(("Average", "Min", "Max", "Product", "Adasum"), FEW_LAYOUTS),
    }
    every = [(op, layout) for op in layouts for layout in layouts[op]]
    for (op, layout), dtype, (form, members, name) in product(every, DTYPES, of_set(ALL_FORMS, np)):
        has_meaning = dtype in FLOATS or (op != "Adasum" and (dtype, op) != ("bool", "Average"))
        if has_meaning and may_be(form, layout):
            yield Cell("allreduce", dtype, layout, form, members, op, set=name)


def scaled_cells(np: int) -> Iterator[Cell]:
    operations = {"allreduce": ["matrix", "scalar"], "reducescatter": ["transposed"]}
    for (operation, layouts), op, dtype in product(operations.items(), ["Average", "Sum"], DTYPES[:-1]):
        for layout, (form, members, name) in product(layouts, of_set(["async", "grouped"], np)):
            yield Cell(operation, dtype, layout, form, members, op, "scaled", name)


def broadcast_cells(np: int) -> Iterator[Cell]:
    forms = [name for name, form in FORMS.items() if not form.grouped]
    for dtype, layout, (form, members, name) in product(DTYPES, LAYOUTS, of_set(forms, np)):
        if may_be(form, layout):
            for root in members:
                yield Cell("broadcast", dtype, layout, form, members, "", f"root{root}", name)


def gather_cells(np: int) -> Iterator[Cell]:
    for dtype, layout, (form, members, name) in product(DTYPES, WITH_ROWS, of_set(OUT_OF_PLACE, np)):
        for variant in ("even", "uneven"):
            yield Cell("allgather", dtype, layout, form, members, "", variant, name)


def alltoall_cells(np: int) -> Iterator[Cell]:
    for dtype, layout, (form, members, name) in product(DTYPES, WITH_ROWS, of_set(["plain", "async"], np)):
        for variant in ("even", "list", "tensor"):
            yield Cell("alltoall", dtype, layout, form, members, "", variant, name)


def scatter_cells(np: int) -> Iterator[Cell]:
    for op, dtype, layout in product(["Average", "Sum"], DTYPES, WITH_ROWS):
        if (dtype, op) != ("bool", "Average"):
            for form, members, name in of_set(OUT_OF_PLACE, np):
                yield Cell("reducescatter", dtype, layout, form, members, op, set=name)


def cells(np: int) -> list[Cell]:
    tables = (allreduce_cells, scaled_cells, broadcast_cells, gather_cells, alltoall_cells, scatter_cells)
    pattern = os.environ.get("MATRIX_CELL", "*")
    return [cell for table in tables for cell in table(np) if fnmatch.fnmatchcase(cell.id, pattern)]


class Runner:
    """Runs batches: asynchronous cells in flight, begun in another order on each rank, amid the others."""

    def __init__(self) -> None:
        self.sets: dict[str, Any] = {"world": hvd.global_process_set}
        self.done = 0
        if hvd.size() > 1:
            self.sets["tail"] = hvd.add_process_set(list(range(1, hvd.size())))

    def run(self, table: list[Cell]) -> None:
        for begin in range(0, len(table), AT_ONCE):
            self._run_batch(table[begin : begin + AT_ONCE])
        for name, process_set in self.sets.items():
            assert name == "world" or hvd.remove_process_set(process_set)

    def _run_batch(self, batch: list[Cell]) -> None:
        self.done += len(batch)
        mine = [cell for cell in batch if hvd.rank() in cell.members]
        later = [cell for cell in mine if FORMS[cell.form].asynchronous]
        turn = hvd.rank() * len(later) // hvd.size()
        calls = [self._begin(cell, cell.id) for cell in [*later[turn:], *later[:turn]]]
        for cell in mine:
            if not FORMS[cell.form].asynchronous:
                self._check(self._begin(cell, None))
        for call in reversed(calls):
            self._check(call)

    def _begin(self, cell: Cell, name: str | None) -> Call:
        try:
            return Call(cell, self.sets[cell.set], name)
        except Exception as error:
            raise AssertionError(_where(cell)) from error

    def _check(self, call: Call) -> None:
        try:
            call.check()
        except Exception as error:
            raise AssertionError(_where(call.cell)) from error


def _where(cell: Cell) -> str:
    test = f"tests/python/matrix/test_matrix.py -k '{hvd.size()} or nodes'"
    return f"cell {cell.id}, rank {hvd.rank()}; alone: MATRIX_CELL='{cell.id}' python -m pytest {test}"


def check_every_cell() -> None:
    table = cells(hvd.size())
    assert table, "no cell has such an id"
    runner = Runner()
    runner.run(table)
    assert runner.done == len(table)
    if hvd.rank() == 0:
        print(f"{len(table)} cells")
