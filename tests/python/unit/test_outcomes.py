"""tools/outcomes.py, with files of pytest's and ctest's own, and the limits of time of in_time.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import outcomes
from outcomes import Failure
from ranks import PATHS, PROGRAMS


def test_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, PATHS)))
    shutil.copy(PROGRAMS / "tests_of_all_outcomes.py", tmp_path / "test_some.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1", "--junitxml=o.xml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stdout
    late = {failure.test.partition("::")[2]: failure.late for failure in outcomes.read(tmp_path / "o.xml")}
    assert late == {
        "test_wrong": False,
        "test_says_so": False,
        "test_promised": True,
        "test_awaited": True,
        "test_a_program": True,
        "test_hangs": True,
        "test_leaves[a/b.c [1]]": True,
        "test_wrong_and_leaves": False,
        "test_wrong_the_second_time": False,
    }
    node = "test_some.py::test_leaves[a/b.c [1]]"
    assert node in {failure.test for failure in outcomes.read(tmp_path / "o.xml")}
    again = [*command[:-3], node]
    assert (
        "1 passed, 1 error"
        in subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    )


# As Catch2 prints it.
HEAD = """
-------------------------------------------------------------------------------
a case
-------------------------------------------------------------------------------
../../tests/cpp/unit/some_test.cc:12
...............................................................................

../../tests/cpp/unit/some_test.cc:14: FAILED:
"""
LATE = f"{HEAD}due to unexpected exception with message:\n  took too long: 9 s of 5 s\n"
WRONG = f"{HEAD}  CHECK( 1 == 2 )\n"
CRASH = f"{HEAD}due to a fatal error condition:\n  SIGSEGV - Segmentation violation signal\n"
SAID = {
    "late": (LATE + LATE, True),
    "wrong": (LATE + WRONG, False),
    "crash": (CRASH, False),
    "silent": ("", False),
    "race": ("WARNING: ThreadSanitizer: data race (pid=1)\n" + LATE, False),
    "undefined": ("a.cc:3: runtime error: signed integer overflow\n" + LATE, False),
}


def test_ctest(tmp_path: Path) -> None:
    lines = ["cmake_minimum_required(VERSION 3.22)", "project(some NONE)", "enable_testing()"]
    for name, (output, _) in SAID.items():
        (tmp_path / name).write_text(output)
        lines.append(f'add_test(NAME {name} COMMAND sh -c "cat {tmp_path / name}; exit 1")')
    lines += [
        f'add_test(NAME hangs COMMAND sh -c "cat {tmp_path / "silent"}; exec sleep 99")',
        f'add_test(NAME hangs_after COMMAND sh -c "cat {tmp_path / "wrong"}; exec sleep 99")',
        "set_tests_properties(hangs hangs_after PROPERTIES TIMEOUT 0.2)",
        "add_test(NAME passes COMMAND true)",
        "add_test(NAME absent COMMAND /nonexistent/program)",
    ]
    (tmp_path / "CMakeLists.txt").write_text("\n".join(lines))
    tools = Path(sys.executable).parent
    subprocess.run(
        [tools / "cmake", "-B", "build", "-G", "Ninja"], cwd=tmp_path, check=True, capture_output=True
    )
    file = tmp_path / "o.xml"
    ended = subprocess.run(
        [tools / "ctest", "--test-dir", "build", "--output-junit", file],
        cwd=tmp_path,
        check=False,
        capture_output=True,
    )
    assert ended.returncode != 0
    expected = {name: late for name, (_, late) in SAID.items()}
    expected |= {"hangs": True, "hangs_after": False, "absent": False}
    assert {failure.test: failure.late for failure in outcomes.read(file)} == expected


@pytest.mark.parametrize("text", [None, "", "<testsuites><testcase"])
def test_a_file_that_says_nothing(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "o.xml"
    if text is not None:
        file.write_text(text)
    assert outcomes.read(file) == []


def test_each_test_counts_once(tmp_path: Path) -> None:
    case = '<testcase classname="tests.python.unit.test_a" name="test_b"><failure message="{}"/></testcase>'
    both = case.format("in_time.TooLateError: 3 s") + case.format("assert 1 == 2")
    (tmp_path / "o.xml").write_text(f"<testsuites>{both}</testsuites>")
    assert outcomes.read(tmp_path / "o.xml") == [Failure("tests/python/unit/test_a.py::test_b", late=False)]
