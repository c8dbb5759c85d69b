"""Reads what a run of tests says of itself, and tells a missed limit of time from every other failure.

The files are JUnit's, as `ctest --output-junit` and `pytest --junitxml` write them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

# How pytest shows the errors of tests/python/support/in_time.py, of `subprocess`, and of pytest-timeout.
_LATE_PYTHON = re.compile(
    r'(?:failed on (?:setup|teardown) with ")?'
    r"(?:(?:\w+\.)*TooLateError:|subprocess\.TimeoutExpired:|Failed: Timeout \(>)"
)
# How Catch2 shows the error of tests/cpp/in_time.h, and any failure.
_LATE_CPP, _FAILED_CPP = "took too long: ", ": FAILED:"
# A sanitizer's report comes first, whatever else is in the output.
_REPORT = re.compile(r"Sanitizer|runtime error:")


@dataclass(frozen=True)
class Failure:
    """A test that failed. `late`: it missed a limit of time, and did nothing else that is wrong."""

    test: str  # as its runner takes it: ctest's name, or pytest's node
    late: bool


def read(file: Path) -> list[Failure]:
    """Return the tests that failed, each once. A file that is not there, or is broken, has none."""
    try:
        root = ElementTree.parse(file).getroot()
    except (OSError, ElementTree.ParseError):
        return []
    late: dict[str, bool] = {}
    for case in root.iter("testcase"):
        if (verdict := _is_late(case)) is not None:
            name = _name(case)
            late[name] = late.get(name, True) and verdict
    return [Failure(name, verdict) for name, verdict in late.items()]


def _name(case: ElementTree.Element) -> str:
    """Return the name of a program of ctest, which is its own class, or of a test of pytest's."""
    name, module = case.attrib["name"], case.attrib["classname"]
    return name if name == module else f"{module.replace('.', '/')}.py::{name}"


def _is_late(case: ElementTree.Element) -> bool | None:
    """Return whether the test failed by a limit of time alone; None if it did not fail."""
    if case.get("status") == "notrun":  # ctest did not find the program
        return False
    complaints = [found.get("message", "") for kind in ("failure", "error") for found in case.iter(kind)]
    if not complaints:
        return None
    if case.get("status") is None:  # pytest has no such word
        return all(_LATE_PYTHON.match(complaint) for complaint in complaints)
    return all(_is_late_program(complaint, case.findtext("system-out", "")) for complaint in complaints)


def _is_late_program(complaint: str, output: str) -> bool:
    if _REPORT.search(output):
        return False
    if complaint == "Timeout":
        return _FAILED_CPP not in output
    failed = list(_failures(output))
    return bool(failed) and all(failed)


def _failures(output: str) -> Iterator[bool]:
    """Yield for each failure that Catch2 shows whether it is a missed limit of time."""
    for shown in output.split(_FAILED_CPP)[1:]:
        lines = [line.strip() for line in shown.splitlines()[:5]]
        yield any(line.startswith(_LATE_CPP) for line in lines)
