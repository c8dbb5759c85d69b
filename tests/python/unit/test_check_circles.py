"""The check that no modules of the package import each other in a circle."""

from __future__ import annotations

from pathlib import Path

import pytest

import check_circles

ROOT = Path(__file__).resolve().parents[3]


def _check(root: Path, **modules: str) -> list[str]:
    package = root / "python" / "roundelay"
    (package / "inner").mkdir(parents=True)
    for name, text in {"__init__": "", "inner/__init__": "", **modules}.items():
        (package / f"{name}.py").write_text(text)
    return check_circles.check(root)


@pytest.mark.parametrize(
    "text",
    [
        "from roundelay import b",
        "import roundelay.b",
        "from roundelay.b import something",
        "def f():\n    from roundelay import b",
        "try:\n    from roundelay import b\nexcept ImportError:\n    pass",
    ],
)
def test_two_that_import_each_other(tmp_path: Path, text: str) -> None:
    circle = "roundelay.a -> roundelay.b -> roundelay.a"
    assert _check(tmp_path, a=text, b="from roundelay.a import other") == [circle]


def test_a_longer_circle_is_told_once(tmp_path: Path) -> None:
    found = _check(
        tmp_path,
        a="from roundelay import b, c",
        b="from roundelay.inner import d",
        c="",
        **{"inner/d": "from roundelay.a import x"},
    )
    assert found == ["roundelay.a -> roundelay.b -> roundelay.inner.d -> roundelay.a"]


@pytest.mark.parametrize(
    "text",
    ["from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from roundelay import b", "import b", ""],
)
def test_what_is_no_circle(tmp_path: Path, text: str) -> None:
    assert _check(tmp_path, a=text, b="from roundelay import a", __init__="from roundelay import a") == []


def test_this_repository_has_imports_to_follow() -> None:
    """A moved folder would make the check pass for nothing."""
    imports = check_circles.graph(ROOT)
    assert sum(map(len, imports.values())) > 500
    assert "roundelay.torch.strategies.text" in imports["roundelay.torch.strategies._auto.candidates"]
