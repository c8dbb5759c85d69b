"""tools/try_versions.py tells what cannot be had from what fails."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import try_versions
from try_versions import BrokenError, NotHereError, Version


def test_versions_are_read() -> None:
    assert Version.read("3.12/2.14.1") == Version("3.12", "2.14.1")
    for text in ("3.12", "3.12/2.14", "2.14.1/3.12", "3.12/2.14.1+cpu"):
        with pytest.raises(ValueError, match=r"3\.12/2\.14\.1"):
            Version.read(text)
    assert all(map(Version.read, try_versions.VERSIONS))


def test_a_python_is_found_on_path_and_in_pyenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "versions" / "3.99.1" / "bin" / "python3.99"
    here.parent.mkdir(parents=True)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(NotHereError, match=r"no python3\.99 here"):
        Version("3.99", "2.13.0").interpreter()
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "python3.99"
    for path, status in ((here, 0), (shim, 1)):  # a shim of pyenv that knows no such version
        path.write_text(f"#!/bin/sh\nexit {status}\n")
        path.chmod(0o755)
    assert Version("3.99", "2.13.0").interpreter() == str(here)
    shim.write_text("#!/bin/sh\nexit 0\n")
    assert Version("3.99", "2.13.0").interpreter() == str(shim)


def test_a_clone_names_the_other_pytorch(tmp_path: Path) -> None:
    try_versions.clone(Version("3.12", "2.99.1"), tmp_path / "tree")
    for name in ("tools/requirements-train.txt", "pyproject.toml"):
        text = (tmp_path / "tree" / name).read_text()
        assert "torch==2.99.1" in text
        assert "torch==2.13.0" not in text
    assert all((tmp_path / "tree" / "tests" / "python" / test).is_file() for test in try_versions.TESTS)


def test_only_what_is_here_and_does_not_work_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes: dict[str, Exception | None] = {"3.10": None, "3.11": NotHereError("no room")}

    def attempt(version: Version) -> None:
        outcome = outcomes[version.python]
        if outcome is not None:
            raise outcome

    monkeypatch.setattr(try_versions, "attempt", attempt)
    assert try_versions.main(["3.10/2.13.0", "3.11/2.13.0"]) == 0
    outcomes["3.11"] = BrokenError("the build: see log")
    assert try_versions.main(["3.10/2.13.0", "3.11/2.13.0"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[2].partition(" (")[0] for line in lines] == [
        "built and tried",
        "cannot be had here: no room",
        "built and tried",
        "FAILED: the build: see log",
    ]


def test_a_disk_that_is_full_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Version, "interpreter", lambda _: "python3")
    usage = shutil.disk_usage("/")._replace(free=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(NotHereError, match="1 GB of disk are free"):
        try_versions.attempt(Version("3.12", "2.13.0"))
