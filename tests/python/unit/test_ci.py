"""tools/ci.py: what fails does not end the rest, and a missed limit of time alone is tried once more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import ci
from ci import Outcome, Phase


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ci, "OUTCOMES", tmp_path)
    monkeypatch.setattr(ci, "TIMES", tmp_path / "times.json")
    (tmp_path / "times.json").write_text(json.dumps({"one": 7, "all": 9}))
    monkeypatch.setattr(ci, "FIRST_OF_TESTS", "none here")
    return tmp_path


def phases(monkeypatch: pytest.MonkeyPatch, *some: Phase) -> None:
    monkeypatch.setattr(ci, "PHASES", some)


def shell(name: str, text: str, needs: str | None = None, rerun: str | None = None) -> Phase:
    return Phase(name, ("sh", "-c", text), needs, rerun)


def says(phase: str, *complaints: str) -> str:
    """Returns a command that fails as a run of pytest does, with a test for each complaint."""
    cases = "".join(
        f'<testcase classname="test_{phase}" name="test_{number}"><failure message="{complaint}"/></testcase>'
        for number, complaint in enumerate(complaints)
    )
    return f"echo '<testsuites>{cases}</testsuites>' >$OUTCOMES; exit 1"


def rerun(monkeypatch: pytest.MonkeyPatch, ends: Mapping[str, bool]) -> list[str]:
    """Lets the tests end so the second time. Returns the list of those that ran again."""
    again = []

    def once_more(_phase: Phase, test: str) -> bool:
        again.append(test)
        return ends[test]

    monkeypatch.setattr(ci, "once_more", once_more)
    return again


def test_a_phase_that_fails_ends_only_those_that_need_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    phases(
        monkeypatch,
        shell("one", "exit 3"),
        shell("two", "echo never", needs="one"),
        shell("three", "echo $CI"),
    )
    assert ci.main() == 1
    said = capfd.readouterr().out
    assert "two: left out, because one failed" in said
    assert "never" not in said
    assert "\ntrue\n=== three: 0 s" in said
    assert "one          0       7  FAILED" in said.splitlines()
    assert "three        0       -" in said.splitlines()
    assert said.splitlines()[-2].endswith("9  FAILED")


def test_what_was_late_passes_the_second_time_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    phases(monkeypatch, shell("one", says("one", "in_time.TooLateError: 9 s of 5 s"), rerun="pytest"))
    again = rerun(monkeypatch, {"test_one.py::test_0": True})
    assert ci.main() == 0
    assert again == ["test_one.py::test_0"]
    assert capfd.readouterr().out.splitlines()[-1] == "flaky: test_one.py::test_0: see tests/flaky.md"


def test_what_is_late_again_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    phases(monkeypatch, shell("one", says("one", *["Failed: Timeout (&gt;300.0s)"] * 2), rerun="pytest"))
    again = rerun(monkeypatch, {"test_one.py::test_0": True, "test_one.py::test_1": False})
    assert ci.main() == 1
    assert len(again) == 2


@pytest.mark.parametrize(
    "complaints",
    [
        ["in_time.TooLateError: 9 s", "assert 1 == 2"],  # the phase has failed anyway
        ["ValueError: took too long"],
        ["in_time.TooLateError: 9 s"] * (ci.MOST_RERUNS + 1),
        [],  # it failed, and no test did: a crash
    ],
)
def test_only_late_tests_run_again(monkeypatch: pytest.MonkeyPatch, complaints: list[str]) -> None:
    phases(monkeypatch, shell("one", says("one", *complaints), rerun="pytest"))
    again = rerun(monkeypatch, {})
    assert ci.main() == 1
    assert again == []


def test_the_limit_of_reruns_is_for_all_phases_together(monkeypatch: pytest.MonkeyPatch) -> None:
    late = ["in_time.TooLateError: 9 s"] * 2
    phases(monkeypatch, *(shell(name, says(name, *late), rerun="pytest") for name in ("one", "two")))
    again = rerun(monkeypatch, {})
    assert ci.main() == 1
    assert again == []


def test_an_outcome_of_before_does_not_count(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    phases(monkeypatch, shell("one", says("one", "in_time.TooLateError: 9 s"), rerun="pytest"))
    rerun(monkeypatch, {"test_one.py::test_0": True})
    assert ci.main() == 0
    assert (place / "one.xml").exists()
    phases(monkeypatch, shell("one", "exit 1", rerun="pytest"))
    assert ci.main() == 1


def test_builds_in_the_background_end_with_the_block(tmp_path: Path) -> None:
    with ci.building(["--eval=wait: ; sleep 600", "wait"]) as builds:
        assert builds.poll() is None
    assert builds.returncode is not None
    assert (tmp_path / "builds.log").exists()


def test_each_commit_draws_one_sanitizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ci, "commit", lambda: "a0")
    first = [phase.name for phase in ci.drawn()]
    monkeypatch.setattr(ci, "commit", lambda: "a1")
    second = [phase.name for phase in ci.drawn()]
    assert {*first} ^ {*second} == {*ci.SANITIZERS}
    assert {*first, *second} == {phase.name for phase in ci.PHASES}


def test_the_table_has_all_phases() -> None:
    names = [phase.name for phase in ci.PHASES]
    lines = ci.table({name: Outcome(passed=True, seconds=1.4) for name in names}, {"train": 61.0})
    assert [line.split()[0] for line in lines[1:]] == names
    assert lines[1].split() == ["train", "1", "61"]


def test_times_of_the_last_run_are_kept() -> None:
    assert set(json.loads((ci.ROOT / ".ci" / "times.json").read_text())) == {
        *(phase.name for phase in ci.PHASES),
        "all",
    }
