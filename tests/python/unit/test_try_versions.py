"""tools/try_versions.py tells what cannot be had from what fails."""

from __future__ import annotations

from pathlib import Path

import pytest

import try_versions
from try_versions import BrokenError, NotHereError, Version


def test_a_clone_names_the_other_pytorch(tmp_path: Path) -> None:
    try_versions.clone(Version("3.12", "2.99.1"), tmp_path / "tree")
    text = (tmp_path / "tree" / "tools" / "requirements-train.txt").read_text()
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
