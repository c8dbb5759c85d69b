"""tools/nightly.py goes on after a step that fails, and says which did."""

from __future__ import annotations

from pathlib import Path

import pytest

import nightly
from nightly import Step


@pytest.fixture(autouse=True)
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "LOGS", tmp_path)
    monkeypatch.setattr(
        nightly,
        "STEPS",
        {
            "bad": Step("what fails", (("sh", "-c", "echo why; exit 3"), ("echo", "never"))),
            "good": Step("what passes", (("echo", "fine"), ("echo", "twice"))),
        },
    )


def test_a_step_that_fails_ends_no_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert nightly.main([]) == 1
    said = capfd.readouterr().out
    assert "bad: FAILED" in said
    assert "good: passed" in said
    assert (tmp_path / "bad.log").read_text().splitlines()[1:] == ["why"]
    assert (tmp_path / "good.log").read_text().splitlines()[1::2] == ["fine", "twice"]
    summary = (tmp_path / "summary.txt").read_text()
    assert "FAILED: out/nightly/bad.log" in summary
    assert "what passes" in summary
