"""`roundelay trials` as a user runs it, on what a search has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from roundelay.torch._internal.tuning.search import Search, Setting
from roundelay.tuning.buckets import Cuts
from roundelay.tuning.trials.cli import main

MIB = 1 << 20


def _log(path: Path, searches: int) -> Path:
    """Write what searches of two settings have found: the second takes half as long."""
    dense, half = Setting(Cuts(16 * MIB), (0, 0), 2, 0.004), Setting(Cuts(4 * MIB, MIB), (1, 1), 2, None)
    text = ""
    for number in range(searches):
        search = Search([dense, half], 2, 0)
        now = 0.0
        while not search.step_over(True, now):
            now += 0.02 if search.current is dense else 0.01
        text += search.report("gradient", f"2026-01-0{1 + number}", lambda plan: ("dense", "bf16")[plan[0]])
    path.write_text(text)
    return path


def test_a_search_becomes_a_table_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = _log(tmp_path / "log.jsonl", 2)
    for name, magic in (("trials.png", b"\x89PNG"), ("trials.svg", b"<?xml")):
        assert main([str(log), "--output", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(magic)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines.count("dense, theta 16 MiB 2 4.0 ms 20.0 ms 20.0 to 20.0 ms") == 4
    assert lines.count("bf16, theta 4, last 1 MiB 2 10.0 ms 10.0 to 10.0 ms kept") == 4
    assert "gradient, 2026-01-02" in lines


@pytest.mark.parametrize(
    ("text", "output", "said"),
    [
        (None, None, "cannot read"),
        ("", None, "it has no lines: a search takes some 80 steps"),
        ("{", None, "line 1 is no JSON"),
        ('{"theta": 3}', None, '"line 1" must have optimizer, date, theta'),
        ("good", "trials.pdf", "ends in neither .png nor .svg"),
        ("good", "nowhere/trials.png", "cannot write"),
    ],
)
def test_what_cannot_be_read_or_written_is_one_line(
    text: str | None, output: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    if text == "good":
        _log(log, 1)
    elif text is not None:
        log.write_text(text)
    words = ["--output", str(tmp_path / output)] if output is not None else []
    assert main([str(log), *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("roundelay trials: ")
    assert error.count("\n") == 1
