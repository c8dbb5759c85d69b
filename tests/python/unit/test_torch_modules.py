"""A torch that fits none of this build's modules is refused in one line; one that fits is recognised."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch

import starts
from ranks import ROOT
from roundelay._internal import backend, torch_modules

HERE = torch_modules.set_for(torch.__version__)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("2.13.0+cpu", "2.13"),
        ("2.13.4", "2.13"),
        ("3.0.1+cu130", "3.0"),
        ("2.16.0.dev20261101+cpu", "2.16.0.dev20261101"),
        ("2.16.0a0+gitcf30153", "2.16.0a0"),
    ],
)
def test_the_set_for_a_version(version: str, name: str) -> None:
    assert torch_modules.set_for(version) == name


def test_what_is_here() -> None:
    assert torch_modules.installed() == torch.__version__
    assert HERE in torch_modules.sets()
    assert Path(backend.c10d_module() or "").parent.name == HERE


def test_sets_are_in_order_of_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("2.9", "2.13", "3.0", "2.16.0.dev20261101"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(torch_modules, "_SETS", tmp_path)
    assert torch_modules.sets() == ["2.9", "2.13", "2.16.0.dev20261101", "3.0"]
    assert torch_modules.folder() == (tmp_path / "2.13" if HERE == "2.13" else None)


def imported_with(folder: Path, version: str, new_abi: bool = True) -> str:
    """The last line of what `import roundelay.torch` says where torch is a package of this version."""
    package = folder / "torch"
    package.mkdir()
    (package / "version.py").write_text(f"__version__ = {version!r}\n")
    lines = ["from torch.version import __version__", f"compiled_with_cxx11_abi = lambda: {new_abi}"]
    (package / "__init__.py").write_text("\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-c", "import roundelay._core"],
        env=starts.environment(PYTHONPATH=f"{folder}:{ROOT / 'python'}"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("version", ["1.13.1", "99.0.0+cpu", "2.13.0.dev20260701"])
def test_a_torch_outside_the_range(tmp_path: Path, version: str) -> None:
    said = imported_with(tmp_path, version)
    assert said.startswith(
        f"ImportError: torch {version} is installed, but this Roundelay has modules for torch "
    )
    assert HERE in said
    assert said.endswith("in a clone, pip install --no-build-isolation .")


def test_a_torch_of_the_old_abi(tmp_path: Path) -> None:
    said = imported_with(tmp_path, torch.__version__, new_abi=False)
    assert said.startswith(f"ImportError: torch {torch.__version__} was compiled with GCC's old C++ ABI")


def test_another_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / HERE).mkdir()
    (tmp_path / HERE / "_core.cpython-39-x86_64-linux-gnu.so").touch()
    monkeypatch.setattr(torch_modules, "_SETS", tmp_path)
    with pytest.raises(
        ImportError, match=r"no core for Python 3\..* \(it has _core\.cpython-39-.*install it again"
    ):
        torch_modules.load("roundelay._core")


def test_nothing_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch_modules, "_SETS", tmp_path)
    with pytest.raises(ImportError, match="has no compiled modules: in a clone, make build or pip install"):
        torch_modules.load("roundelay._core")


def test_the_core_is_of_the_set_for_this_torch() -> None:
    from roundelay import _core

    assert _core.__name__ == "roundelay._core"
    assert sys.modules["roundelay._core"] is _core
    path = Path(_core.__file__)
    assert path.parent.name == HERE
    assert path.name.removeprefix("_core") in EXTENSION_SUFFIXES
