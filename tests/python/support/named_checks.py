"""Makes each check of a file a test of its own.

A check is a function whose name begins with `check_`; it runs on every rank of a job. A test that has the
parameter `check` becomes one test for each check of its file, or of the files in its mark `checks_of`:
`test_strategy_state[2-nothing_is_lost]` runs `check_nothing_is_lost` on 2 ranks. The mark's `only` and `but`
choose some of the checks, by names without `check_`. All checks of a test with the same other parameters are
a session of the same ranks (ranks.py), which `variant_of()` names.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PREFIX = "check_"


@dataclass(frozen=True)
class Check:
    """A function of a file. `id` is its name in the test's parameters."""

    file: str
    name: str
    id: str


def names_in(file: str | Path) -> list[str]:
    """Returns the names of the checks that a file defines or imports, in order. Does not import the file."""
    names: list[str] = []
    for statement in ast.parse(Path(file).read_bytes()).body:
        if isinstance(statement, ast.FunctionDef):
            names.append(statement.name)
        elif isinstance(statement, ast.ImportFrom):
            names += [name.asname or name.name for name in statement.names]
    return [name for name in names if name.startswith(PREFIX)]


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
    names = names_in(file)
    assert names, f"{file} has no functions whose names begin with {PREFIX}"
    return [Check(str(file), name, prefix + name.removeprefix(PREFIX)) for name in names]


def variant_of(item: pytest.Item) -> str:
    """Returns the test's node id without its check."""
    parameters = getattr(item, "callspec", None)
    check = parameters.params.get("check") if parameters is not None else None
    if not isinstance(check, Check):
        return item.nodeid
    return item.nodeid.removesuffix(f"[{check.id}]").removesuffix(f"-{check.id}]")
