"""The helper that runs checks on ranks: a check that fails or hangs is reported, with where it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ranks import launch, mpirun, run_checks

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")


def test_a_failing_check_fails_with_its_output(tmp_path: Path) -> None:
    file = tmp_path / "failing.py"
    file.write_text("def check_sum():\n    assert 1 + 1 == 3, 'wrong on purpose'\n")
    with pytest.raises(AssertionError, match="wrong on purpose"):
        run_checks(str(file), 2)


def test_a_hanging_rank_is_ended_and_says_where(tmp_path: Path) -> None:
    file = tmp_path / "hanging.py"
    file.write_text(
        "import faulthandler, os, threading\n"
        "faulthandler.dump_traceback_later(float(os.environ['RANKS_LIMIT_S']), exit=True)\n"
        "def never_ends():\n    threading.Event().wait()\n"
        "never_ends()\n"
    )
    run = launch([sys.executable, str(file)], 2, limit_s=2.0)
    assert run.returncode != 0
    assert "in never_ends" in run.output
