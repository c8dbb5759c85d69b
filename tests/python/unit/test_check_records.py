"""tools/check_records.py finds a field of Python's that C++ has, too."""

from __future__ import annotations

from pathlib import Path

import pytest

import check_records
from ranks import ROOT

STUB = """
from roundelay._core_part import *

class Config:
    theta: int

class Gradient:
    def __init__(self, name: str) -> None: ...
    @property
    def reductions(self) -> int: ...
    def take(self) -> None: ...
"""
PART = """
class HookRules:
    passes: int

class Bucket:
    @property
    def run(self) -> int: ...
    @run.setter
    def run(self, number: int) -> None: ...
    @property
    def reductions(self) -> int: ...
"""


def _check(root: Path, text: str, allowed: dict[str, str] | None = None, stub: str = STUB) -> list[str]:
    package = root / "python" / "roundelay"
    for folder in check_records.FOLDERS:
        (package / folder).mkdir(parents=True)
    (package / "_core.pyi").write_text(stub)
    (package / "_core_part.pyi").write_text(PART)
    (package / check_records.FOLDERS[0] / "sync.py").write_text(text)
    return check_records.check(root, allowed or {})


@pytest.mark.parametrize(
    ("text", "field", "there"),
    [
        ("class A:\n  passes: int\n", "A.passes", "HookRules.passes"),
        ("class A(NamedTuple):\n  run: int = 3\n", "A.run", "Bucket.run"),
        ("class A:\n  __slots__ = ('__weakref__', '_run')\n", "A._run", "Bucket.run"),
        ("class A:\n  def __init__(self):\n    self._passes = 1\n", "A._passes", "HookRules.passes"),
        ("class A:\n  def __init__(self):\n    self.run: int = 1\n", "A.run", "Bucket.run"),
        ("class A:\n  def __init__(self):\n    self.a = self.run = 1\n", "A.run", "Bucket.run"),
        ("class A:\n  def __init__(self):\n    self.a, self.run = 1, 2\n", "A.run", "Bucket.run"),
        ("class A:\n  class B:\n    run: int\n", "B.run", "Bucket.run"),
        ("class A:\n  reductions: int\n", "A.reductions", "Bucket.reductions and Gradient.reductions"),
    ],
)
def test_a_field_that_cpp_has(tmp_path: Path, text: str, field: str, there: str) -> None:
    file = "python/roundelay/torch/_internal/optimizer/sync.py"
    assert _check(tmp_path, text) == [f"{file}: {field} has the name of _core.{there}: ask that one"]


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n  take: int\n  theta: int\n",  # a method; a setting
        "class A:\n  run: ClassVar[int] = 3\n",
        "class A:\n  @property\n  def run(self):\n    return self._core.run\n",
        "class A:\n  def __init__(self, other):\n    other.run = 1\n    run = 2\n",
        "run: int = 1\n",
    ],
)
def test_what_is_no_field_that_cpp_has(tmp_path: Path, text: str) -> None:
    assert _check(tmp_path, text) == []


def test_a_list_with_reasons_allows_what_is_there(tmp_path: Path) -> None:
    allowed = {"A.run": "it counts something else", "A.passes": "it was there once"}
    file = "python/roundelay/torch/_internal/optimizer/sync.py"
    assert _check(tmp_path, "class A:\n  run: int\n  _run: int\n", allowed) == [
        f"{file}: A._run has the name of _core.Bucket.run: ask that one",
        "A.passes is no field with a property's name any more: remove it from tools/check_records.py",
    ]


def test_a_stub_without_classes_is_no_success(tmp_path: Path) -> None:
    (line,) = _check(tmp_path, "", stub="class Config:\n    theta: int\n")
    assert "nothing was compared" in line


def test_this_repository_has_something_to_compare() -> None:
    """A moved folder or stub would make the check pass for nothing."""
    owners = check_records.properties(check_records.stub_classes(ROOT / check_records.PACKAGE / "_core.pyi"))
    found = [record for _, record in check_records.records(ROOT)]
    assert {"wanted", "technique"} <= owners.keys()
    folders = {path.parent.name for path, _ in check_records.records(ROOT)}
    assert folders == {"optimizer", "gradients", "tuning"}
    assert sum(len(check_records.fields(record)) for record in found) > 50
