"""Makes each check of a file a test of its own.

A check is a function whose name begins with `check_`; it runs on every rank of a job. A test that has the
parameter `check` becomes one test for each check of its file, or of the files in its mark `checks_of`:
`test_strategy_state[2-nothing_is_lost]` runs `check_nothing_is_lost` on 2 ranks. The mark's `only` and `but`
choose some of the checks, by names without `check_`. A check that has nothing to check on some numbers of
ranks says so by `needs_ranks()`, and is no test on those. All checks of a test with the same other parameters
are a session of the same ranks (ranks.py), which `variant_of()` names.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

PREFIX = "check_"
TESTS = Path(__file__).parents[1]
Function = TypeVar("Function", bound=Callable[[], None])


@dataclass(frozen=True)
class Check:
    """A function of a file, for `least` to `most` ranks. `id` is its name in the test's parameters."""

    file: str
    name: str
    id: str
    least: int = 1
    most: int = sys.maxsize

    def fits(self, np: int) -> bool:
        """Returns whether there is something to check on so many ranks."""
        return self.least <= np <= self.most


def needs_ranks(least: int, most: int = sys.maxsize) -> Callable[[Function], Function]:
    """Says on how many ranks a check has something to check. It is read from the source."""
    return lambda check: check


def checks_in(file: str | Path, prefix: str = "") -> list[Check]:
    """Returns the checks that a file defines or imports, in order. Does not import the file."""
    checks: list[Check] = []
    for statement in ast.parse(Path(file).read_bytes()).body:
        found: list[tuple[str, Sequence[int]]] = []
        if isinstance(statement, ast.FunctionDef):
            found = [(statement.name, _ranks_of(statement))]
        elif isinstance(statement, ast.ImportFrom):
            found = [
                (name.asname or name.name, _ranks_there(statement, name.name)) for name in statement.names
            ]
        checks += [
            Check(str(file), name, prefix + name.removeprefix(PREFIX), *ranks)
            for name, ranks in found
            if name.startswith(PREFIX)
        ]
    return checks


def _ranks_of(function: ast.FunctionDef) -> Sequence[int]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == needs_ranks.__name__:
            return [ast.literal_eval(argument) for argument in decorator.args]
    return ()


def _ranks_there(statement: ast.ImportFrom, name: str) -> Sequence[int]:
    """Returns what the file says that a check is imported from."""
    file = (TESTS / (statement.module or "").replace(".", "/")).with_suffix(".py")
    if not name.startswith(PREFIX) or not file.exists():
        return ()
    there = {check.name: (check.least, check.most) for check in checks_in(file)}
    return there[name]


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Gives a test that has the parameter `check` the checks of its files."""
    if "check" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("checks_of")
    if mark is None:
        checks = _of_file(metafunc.definition.path, "")
    else:
        checks = _chosen(_of_files(mark.args) or _of_file(metafunc.definition.path, ""), **mark.kwargs)
    metafunc.parametrize("check", checks, ids=lambda check: check.id)


def _of_files(files: tuple[Path, ...]) -> list[Check]:
    return [check for file in files for check in _of_file(file, f"{file.stem.removeprefix('test_')}.")]


def _chosen(checks: list[Check], only: Sequence[str] = (), but: Sequence[str] = ()) -> list[Check]:
    unknown = {*only, *but} - {check.id for check in checks}
    assert not unknown, f"the mark `checks_of` names checks that are not there: {sorted(unknown)}"
    return [check for check in checks if check.id not in but and (not only or check.id in only)]


def _of_file(file: Path, prefix: str) -> list[Check]:
    checks = checks_in(file, prefix)
    assert checks, f"{file} has no functions whose names begin with {PREFIX}"
    return checks


def fits(item: pytest.Item) -> bool:
    """Returns whether the test's check has something to check on its number of ranks, the parameter `np`."""
    callspec = getattr(item, "callspec", None)
    parameters = {} if callspec is None else callspec.params
    check = parameters.get("check")
    return not isinstance(check, Check) or check.fits(parameters.get("np", check.least))


def variant_of(item: pytest.Item) -> str:
    """Returns the test's node id without its check."""
    parameters = getattr(item, "callspec", None)
    check = parameters.params.get("check") if parameters is not None else None
    if not isinstance(check, Check):
        return item.nodeid
    return item.nodeid.removesuffix(f"[{check.id}]").removesuffix(f"-{check.id}]")
