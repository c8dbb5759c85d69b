"""The tuning file: what is written is read again; a file that cannot be used is one line with the cure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roundelay.tuning import file as tuning_file
from roundelay.tuning.file import TuningFileError
from tunings import TUNING


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    tuning_file.save(TUNING, path)
    assert tuning_file.load(path) == TUNING
    assert [one.name for one in tmp_path.iterdir()] == ["tuning.json"]
    assert tuning_file.load(path).link("cluster") == TUNING.links[0]
    assert TUNING.link("node") is None


def test_ranks_agree_on_levels_links_and_choices() -> None:
    assert tuning_file.agreed_text(TUNING).splitlines() == [
        "fabric mpi",
        "level node 2",
        "level cluster 2",
        "link cluster 1e-05 125000000.0 1e-09",
        "choice cluster allreduce 2 65536 recursive_doubling",
        "choice cluster allreduce 2 any ring",
        "choice cluster broadcast 4 any pipelined_tree",
    ]


def _set(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        target: Any = content
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_set("format", value="else"), 'it is no tuning file: it has no "format": "roundelay tuning"'),
        (_set("version", value=2), "it has version 2, this Roundelay reads 1"),
        (_set("units", "time", value="ms"), "its units are {'time': 'ms'"),
        (_set("links", value={}), '"links" is no list'),
        (_set("links", 0, "alpha", value="5us"), "\"links[0].alpha\" is '5us', not of type float"),
        (_set("links", 0, "alpha", value=-1.0), '"links[0].alpha" is -1.0, out of range'),
        (_set("links", 0, "alpha", value=float("nan")), '"links[0].alpha" is nan, out of range'),
        (_set("links", 0, "bandwidth", value=0.0), "the bandwidth of level 'cluster' is 0.0"),
        (_set("links", 0, "unit", value="s"), '"links[0]" must have level, alpha, bandwidth'),
        (_set("cluster", "ranks", value=True), '"cluster.ranks" is True, not of type int'),
        (_set("cluster", "levels", 0, "name", value="a node"), "'a node' is no name of a level"),
        (_set("cluster", "levels", 0, "name", value="cluster"), "two levels have one name"),
        (_set("table", 0, "level", value="rack"), "no level 'rack'; its levels are node, cluster"),
        (_set("table", 0, "algorithm", value="rings"), "allreduce has no 'rings'; there are: direct"),
        (_set("table", 0, "operation", value="sum"), "sum has no 'recursive_doubling'; there are: none"),
        (_set("table", 0, "ranks", value=1), "a choice is for groups of 1 ranks"),
        (_set("table", 1, "most_bytes", value=4096), "cluster allreduce 2 ranks do not ascend"),
        (_set("table", 1, "most_bytes", value=1 << 20), "lack an algorithm beyond 1048576 bytes"),
        (_set("date", value=3), '"date" is 3, not a text'),
    ],
)
def test_a_bad_file_is_refused_in_one_line_with_the_cure(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], why: str
) -> None:
    path = tmp_path / "tuning.json"
    tuning_file.save(TUNING, path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(TuningFileError) as refused:
        tuning_file.load(path)
    text = str(refused.value)
    assert text.startswith(f"the tuning file '{path}' cannot be used: ")
    assert why in text
    assert text.endswith(f"; write one with: roundelay tune -np N --output {path}")
    assert "\n" not in text


def test_no_file_and_no_json(tmp_path: Path) -> None:
    with pytest.raises(TuningFileError, match="no such file or directory; write one with"):
        tuning_file.load(tmp_path / "nothing.json")
    with pytest.raises(TuningFileError, match="is a directory; write one with"):
        tuning_file.load(tmp_path)
    for content in (b"", b"{", b"\xff\xfe", b"[]"):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(TuningFileError, match="it is not JSON|it is no tuning file"):
            tuning_file.load(tmp_path / "bad")


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    tuning_file.save(TUNING, path)
    unwritable = dataclasses.replace(TUNING, date=b"bytes")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        tuning_file.save(unwritable, path)
    assert tuning_file.load(path) == TUNING
