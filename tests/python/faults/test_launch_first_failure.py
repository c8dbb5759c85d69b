"""The rank that failed first is named, whatever the exceptions' texts, and whoever ends first."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch_job import LIMIT_S, Job
from programs import losing_a_rank
from rank_program import program


@pytest.mark.parametrize("tells", [True, False], ids=["tells", "stderr alone"])
def test_exceptions_of_several_lines(job: Job, tells: bool) -> None:
    status, _, err = job.run(2, program(losing_a_rank.raises_when_rank_0_has_ended, tells))
    assert status == 1
    last = err[err.index("roundelayrun: ") :].splitlines()
    assert last[0] == "roundelayrun: the last lines of rank 1 on stderr:"
    assert last[-4:-1] == ["  ValueError: one", "  two", "  three"]
    assert last[-1].startswith("roundelayrun: rank 1 (pid ")
    assert last[-1].endswith(" failed first: exit code 1: ValueError: one")


def test_a_rank_that_raises_and_does_not_end(job: Job) -> None:
    status, _, err = job.run(2, program(losing_a_rank.raises_and_does_not_end))
    assert status == 1
    last = err.splitlines()[-1]
    assert last.startswith("roundelayrun: rank 1 (pid ")
    assert last.endswith(" failed first: it raised an exception, and did not end in time: ValueError: one")


# --- roundelay.run ---


def fail_after_rank_0(folder: str) -> None:
    import os
    import time

    own = Path(folder, f"pid.{os.environ['RANK']}")
    own.write_text(str(os.getpid()))
    first = Path(folder, "pid.0")
    if os.environ["RANK"] == "1":
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline and not (first.exists() and first.read_text()):
            time.sleep(0.01)
        while time.monotonic() < deadline and Path("/proc", first.read_text()).exists():
            time.sleep(0.01)
        raise ValueError("one\ntwo")

    class HorovodInternalError(RuntimeError):
        pass

    import sys
    import types

    core = types.SimpleNamespace(HorovodInternalError=HorovodInternalError)
    sys.modules["roundelay._core"] = core  # type: ignore[assignment]
    raise HorovodInternalError("rank 1 raised ValueError: one\ntwo")


def test_a_function_of_several_ranks(tmp_path: Path) -> None:
    import roundelay

    with pytest.raises(ValueError, match="one\ntwo"):
        roundelay.run(fail_after_rank_0, (str(tmp_path),), np=2)
