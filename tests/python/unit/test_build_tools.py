"""What the build lacks is one line with its cure."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import build_tools
import check_machine
from ranks import ROOT


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The versions of packages that are installed; cmake and ninja are on no PATH."""
    versions = {"scikit-build-core": "0.11.6", "setuptools": "80.1", "cmake": "3.22.6", "ninja": "1.11.1.4"}
    versions |= {"torch": "2.14.1+cpu", "numpy": "2.1"}

    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(build_tools, "version", version)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/c++" if name == "c++" else None)
    monkeypatch.setattr(check_machine, "missing_to_compile", list)
    return versions


def test_all_is_here(installed: dict[str, str]) -> None:
    assert build_tools.missing() == []


@pytest.mark.parametrize(
    ("name", "requirement"),
    [
        ("scikit-build-core", "scikit-build-core>=0.11"),
        ("setuptools", "setuptools>=77"),
        ("cmake", "cmake>=3.22"),
        ("ninja", "ninja"),
        ("torch", "torch>=2.11"),
    ],
)
def test_a_package_is_missing(installed: dict[str, str], name: str, requirement: str) -> None:
    del installed[name]
    (line,) = build_tools.missing()
    assert line.startswith(f"the build needs {requirement}: {sys.executable} -m pip install ")
    assert requirement in line.partition("pip install ")[2].replace("'", "").split()


@pytest.mark.parametrize(("name", "version"), [("scikit-build-core", "0.9.11"), ("setuptools", "65.5.0")])
def test_a_package_is_too_old(installed: dict[str, str], name: str, version: str) -> None:
    installed[name] = version
    (line,) = build_tools.missing()
    assert line.startswith(f"the build needs {name}>=")


def test_the_systems_own_cmake_will_do(installed: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    del installed["cmake"], installed["ninja"]
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert build_tools.missing() == []


def test_the_list_of_a_pyproject() -> None:
    assert build_tools.requirements('[a]\nrequires = ["x>=1", "y"]\nb = ["z"]\n') == ["x>=1", "y"]


def test_pip_shows_the_line(tmp_path: Path) -> None:
    """In an environment that has nothing, and no compiler."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    python = tmp_path / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-build-isolation"]
    run = subprocess.run(
        [*pip, "--no-deps", "--no-index", str(ROOT)],
        env={"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )
    said = run.stdout + run.stderr
    assert run.returncode == 1
    assert "roundelay: No C++ compiler found: apt-get install g++" in said
    needed = "scikit-build-core>=0.11, setuptools>=77, cmake>=3.22, ninja, torch>=2.11, numpy"
    assert f"roundelay: the build needs {needed}: {python} -m pip install 'scikit-build-core>=0.11' " in said
    assert "Traceback" not in said
