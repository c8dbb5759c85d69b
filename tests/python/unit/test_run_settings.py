"""Variables that init() would refuse: the launcher says so in one line, before there is a rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import starts
from ranks import ROOT
from roundelay.run import cli
from roundelay.run.arguments import settings
from roundelay.run.errors import UsageError


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("ROUNDELAY_THETA", "-1", "it must be auto or a whole number from 0 on"),
        ("ROUNDELAY_CACHE_CAPACITY", "99999999", "it must be a whole number from 0 to 65536"),
        ("HOROVOD_CYCLE_TIME", "x", 'HOROVOD_CYCLE_TIME="x" is not valid'),
        ("ROUNDELAY_START_TIMEOUT", "soon", "it must be seconds above 0 up to 31536000 (a year)"),
        ("ROUNDELAY_CHANEL", "tcp", "there is no such variable; the nearest is ROUNDELAY_CHANNEL"),
        ("ROUNDELAY_TIMELINE", "/dev/full", "cannot write ROUNDELAY_TIMELINE '/dev/full': no space left"),
        ("HOROVOD_TIMELINE", "/no/such/t", "cannot write HOROVOD_TIMELINE '/no/such/t': there is no folder"),
    ],
)
def test_a_bad_variable_is_one_line_and_no_rank_starts(
    variable: str,
    value: str,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value)
    trace = tmp_path / "started"
    assert cli.main(["-np", "2", "touch", str(trace)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("roundelayrun: error: ")
    assert said.count("\n") == 1
    assert complaint in said
    assert not trace.exists()


def test_what_flags_set_is_checked_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-np", "2", "--cache-capacity", "99999999", "true"]) == 2
    assert "it must be a whole number from 0 to 65536" in capsys.readouterr().err


def test_good_variables_and_odd_ones_of_others_pass() -> None:
    settings.check({"ROUNDELAY_THETA": "auto", "HOROVOD_CYCLE_TIME": "0.5", "ODD": "a=b\udcff", "EMPTY": ""})
    with pytest.raises(UsageError, match='ROUNDELAY_BOOTSTRAP="=" is not valid'):
        settings.check({"ROUNDELAY_BOOTSTRAP": "="})


def test_the_trial_leaves_the_timelines_file_as_it_was(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("what was recorded")
    for path in (old, new):
        assert cli.main(["-np", "1", "--dry-run", "--timeline-filename", str(path), "true"]) == 0
    assert old.read_text() == "what was recorded"
    assert not new.exists()


def test_the_check_does_not_load_torch() -> None:
    """That alone would take seconds."""
    program = "import os, sys; from roundelay.run.arguments import settings; settings.check(os.environ); "
    program += "sys.exit(int('torch' in sys.modules))"
    subprocess.run([sys.executable, "-c", program], env=starts.environment(), cwd=ROOT, check=True)
