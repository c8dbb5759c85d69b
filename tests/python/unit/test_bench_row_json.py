"""The benchmarks' stored results: a row a line."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.row_json import as_rows

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize(
    "value", [None, 0.1, "a\nb", [], {}, [[]], [{}], {"a": []}, [[1, [2.5]], {"b": {"c": [True]}}], (1, 2)]
)
def test_what_is_written_reads_back(value: Any) -> None:
    assert json.loads(as_rows(value)) == json.loads(json.dumps(value))


def test_rows_are_lines() -> None:
    runs = [{"seed": seed, "curve": [[step, 1 / 3] for step in range(100)]} for seed in range(3)]
    text = as_rows({"task": "digits", "runs": runs})
    assert json.loads(text) == {"task": "digits", "runs": runs}
    assert [line.strip(" ,") for line in text.splitlines()] == [
        "{",
        '"task": "digits"',
        '"runs": [',
        *map(json.dumps, runs),
        "]",
        "}",
    ]


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.json")), ids=lambda path: path.name)
def test_stored_results_are_written_so(path: Path) -> None:
    text = path.read_text()
    assert text == as_rows(json.loads(text)) + "\n"
