"""The check that no modules of the package import each other in a circle."""

from __future__ import annotations

from pathlib import Path

import pytest

import check_circles

ROOT = Path(__file__).resolve().parents[3]


def _check(root: Path, **modules: str) -> list[str]:
    _write(root, {"inner/__init__": "", **modules})
    return check_circles.check(root, {})


def _write(root: Path, modules: dict[str, str]) -> None:
    for name, text in {"__init__": "", **modules}.items():
        path = root / "python" / "roundelay" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


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


def _packages(root: Path, **imports: str) -> None:
    """Makes packages x.a, x.b ..., whose module `top` imports nothing, and `low` what is said."""
    modules = {"x/__init__": ""}
    for name, text in imports.items():
        modules |= {f"x/{name}/__init__": "", f"x/{name}/top": "", f"x/{name}/low": text}
    _write(root, modules)


def test_packages_beside_each_other_import_in_one_direction(tmp_path: Path) -> None:
    other = "from roundelay.x.{}.top import something"
    _packages(tmp_path, a=other.format("b"), b=other.format("c"), c="")
    assert check_circles.check(tmp_path, {}) == []
    _packages(tmp_path, a=other.format("b"), b=other.format("c"), c=other.format("a"))
    circle = "roundelay.x.a -> roundelay.x.b -> roundelay.x.c -> roundelay.x.a"
    assert check_circles.check(tmp_path, {}) == [circle]  # no modules import each other in a circle


def test_an_exception_is_needed_by_a_circle(tmp_path: Path) -> None:
    other = "from roundelay.x.{}.top import something"
    edge = ("roundelay.x.a", "roundelay.x.b")
    _packages(tmp_path, a=other.format("b"), b=other.format("a"))
    assert check_circles.check(tmp_path, {edge: "why"}) == []
    _packages(tmp_path, a=other.format("b"), b="")
    gone = ["roundelay.x.a -> roundelay.x.b is in no circle: remove it from tools/check_circles.py"]
    assert check_circles.check(tmp_path, {edge: "why"}) == gone


def test_a_package_may_use_what_lies_in_it_and_above_it(tmp_path: Path) -> None:
    _packages(tmp_path, a="from roundelay.x import something\nfrom roundelay.x.a.top import other")
    assert check_circles.check(tmp_path, {}) == []


def test_this_repository_has_imports_to_follow() -> None:
    """A moved folder would make the check pass for nothing."""
    imports = check_circles.graph(ROOT)
    assert sum(map(len, imports.values())) > 500
    assert "roundelay.torch._internal.strategy.text" in imports["roundelay.torch.strategies._auto.candidates"]
    beside = next(one for one in check_circles.package_graphs(imports) if "roundelay.torch.strategies" in one)
    assert "roundelay.torch._internal" in beside["roundelay.torch.strategies"]
