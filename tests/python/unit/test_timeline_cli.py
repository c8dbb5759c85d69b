"""`roundelay timeline` as a user runs it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from roundelay.timeline.cli import main
from roundelay.timeline.report import bytes_text, time_text


def job(ranks: int, steps: int) -> list[dict[str, Any]]:
    """Each step takes 20 ms, of which 10 are backward; 4 of 8 ms of communication are behind it."""
    events: list[dict[str, Any]] = []
    for rank in range(ranks):
        for step in range(steps):
            zero = 20_000 * step
            training = (
                ("backward", 5_000, 15_000),
                ("synchronize", 15_000, 19_000),
                ("step", 19_000, 20_000),
            )
            for name, begin, end in training:
                where = {"ph": "X", "pid": rank, "tid": 1, "name": name}
                events.append({**where, "ts": zero + begin, "dur": end - begin})
            args = {
                "order": step,
                "index": 0,
                "tensors": 6,
                "bytes": 3 << 20,
                "dtype": "float32",
                "names": ["w"],
            }
            where = {"ph": "X", "pid": rank, "tid": 3, "name": "allreduce"}
            events.append({**where, "ts": zero + 12_000, "dur": 7_000, "args": args})
            tensor = {"ph": "n", "pid": rank, "tid": 0, "cat": "tensor", "id": f"{rank}-{step}"}
            events.append({**tensor, "name": "submit", "ts": zero + 11_000})
            events.append({**tensor, "name": "complete", "ts": zero + 19_000})
    late = {"tensor": "w", "last_rank": ranks - 1, "waited_us": 1500.0}
    events.append({"ph": "i", "pid": 0, "tid": 4, "name": "ready", "s": "t", "ts": 1, "args": late})
    return events


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job(2, 5)))
    return path


def test_summary_and_picture(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(file)]) == 0
    out = capsys.readouterr().out
    assert "2 ranks, step 19 ms, communication under way 8 ms, of it exposed 4 ms: 50% hidden" in out
    assert "fusion: 30 tensors in, 5 operations out (6.0 in each), 15.0 MiB, 3.0 MiB an operation" in out
    assert "1x, median 1.5 ms, at most 1.5 ms" in out
    first = next(line for line in out.splitlines() if line.split()[:2] == ["0", "5"])
    assert first.split()[2:8] == ["19", "ms", "15", "ms", "10", "ms"]  # time, computing, backward
    assert "missing" not in out
    picture = Path(f"{file}.png")
    assert f"picture: {picture}" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_technique_has_a_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = job(2, 5)
    for event in events:
        if event["name"] == "allreduce":
            event["args"] |= {"technique": "cyclic:parts=4", "called_bytes": 3 << 18}
    file.write_text(json.dumps(events))
    assert main([str(file)]) == 0
    out = capsys.readouterr().out
    assert "technique cyclic:parts=4: 5 operations, 15.0 MiB of gradients, 3.8 MiB sent" in out


@pytest.mark.parametrize(("flags", "technique"), [([], "dense:wire=bf16"), (["--verbose"], "half:wire=bf16")])
def test_a_technique_has_the_users_text(
    flags: list[str], technique: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = job(2, 5)
    for event in events:
        if event["name"] == "allreduce":
            event["args"] |= {"technique": "half:wire=bf16", "called_bytes": 3 << 18}
    file.write_text(json.dumps(events))
    assert main([str(file), *flags]) == 0
    assert f"technique {technique}: 5 operations" in capsys.readouterr().out


def test_the_last_cuts_of_each_pool_are_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = ["pool of g: cut into 9", "pool of g: autotune keeps theta [16] MiB", "pool of g: cut into 7"]
    where = {"ph": "X", "pid": 0, "tid": 1, "dur": 1}
    every = [*said, "pool of h: cut into 2", "generation 2; left: 0; place 0.01 s"]
    marks = [{**where, "name": text, "ts": 100 + at} for at, text in enumerate(every)]
    file.write_text(json.dumps([*job(2, 5), *marks]))
    assert main([str(file)]) == 0
    out = capsys.readouterr().out
    assert "\n".join([*every[1:], ""]) in out
    assert said[0] not in out
    assert "2 ranks, step 19 ms" in out


def test_chosen_steps_and_svg(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "p.svg"
    assert main([str(file), "--steps", "3:", "--output", str(picture)]) == 0
    assert "12 tensors in, 2 operations out" in capsys.readouterr().out
    text = picture.read_text()
    assert "<svg" in text
    assert "<!-- step 3 -->" in text
    assert "<!-- step 2 -->" not in text


def test_a_truncated_file_still_opens(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(json.dumps(job(2, 5))[:-20])
    assert main([str(file)]) == 0
    assert "the job died, or still runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "why"), [("hello", "no trace"), ("[]", "has no spans"), ("[\n", "has no spans")]
)
def test_a_file_that_is_no_trace_is_refused(
    file: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    file.write_text(text)
    assert main([str(file)]) == 1
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1


def test_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.json")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_steps_that_are_not_there(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(file), "--steps", "7:9"]) == 1
    assert "the file has steps 0:5" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--steps", "x"], ["--output", "p.txt"]])
def test_wrong_arguments(file: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(file), *arguments])
    assert ended.value.code == 2


def test_an_unwritable_picture(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(file), "--output", str(tmp_path / "none" / "p.png")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_without_matplotlib(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "roundelay.timeline.picture", None)
    assert main([str(file)]) == 0
    assert "pip install matplotlib" in capsys.readouterr().err
    assert main([str(file), "--output", str(tmp_path / "p.png")]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err


def test_times_and_bytes_have_units() -> None:
    assert [time_text(t) for t in (0, 12.34, 1500, 2.5e6)] == ["0 us", "12.3 us", "1.5 ms", "2.50 s"]
    assert [bytes_text(b) for b in (10, 1536, 3 << 20, 5 << 30)] == ["10 B", "1.5 KiB", "3.0 MiB", "5.0 GiB"]
