"""The benchmarks really run: with ranks, peers, checks, table, JSON and plot."""

import dataclasses
import json
import math
import re
import sys
from pathlib import Path

import pytest

from benchmarks import allreduce, launch, train_step
from benchmarks.contenders import GRADIENTFLOW
from benchmarks.gradientflow import __main__ as gradientflow
from benchmarks.gradientflow.result import WARMUPS
from benchmarks.report import table as report
from benchmarks.table import __main__ as table
from benchmarks.table import samples
from benchmarks.table.rows import ROWS
from in_time import wait_until
from tests.rig import why_not

pytest.importorskip("mpi4py")
pytest.importorskip("roundelay._core")


def test_allreduce(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    allreduce.main(["--quick", "--ranks", "2", "--sizes", "256", "64K", "--output", str(tmp_path)])
    out = capsys.readouterr().out
    assert "Allreduce, 2 ranks" in out
    assert "MPI has no reduction of this type (bf16, fp16)" in out
    (job,) = json.loads((tmp_path / "allreduce.json").read_text())["jobs"]
    assert [(cell["dtype"], cell["bytes"]) for cell in job["cells"]] == [
        (dtype, size) for dtype in ("float32", "float16", "bfloat16") for size in (256, 65536)
    ]
    assert [set(cell["seconds"]) for cell in job["cells"]] == [{"roundelay", "pool", "gloo", "mpi"}] * 2 + [
        {"roundelay", "pool", "gloo"}
    ] * 4
    assert all(t["median"] > 0 for cell in job["cells"] for t in cell["seconds"].values())
    assert (tmp_path / "allreduce.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
def test_train_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_step.main(["--quick", "--ranks", "2", "--output", str(tmp_path)])
    assert "Training step, 2 ranks" in capsys.readouterr().out
    (job,) = json.loads((tmp_path / "train_step.json").read_text())["jobs"]
    (cell,) = job["cells"]
    assert (cell["model"], cell["tensors"]) == ("mlp", 98)
    assert set(cell["seconds"]) == {"none", "roundelay", "gloo", "ddp"}
    assert set(cell["exposed"]) == {"roundelay", "gloo", "ddp"}
    assert (tmp_path / "train_step.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
@pytest.mark.timeout(600)  # starts seven jobs
def test_the_table_measures_every_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(samples, "MOST_OTHERS", math.inf)  # whoever else runs here: this is no measurement
    table.main(["--quick", "--output", str(tmp_path)])
    out = capsys.readouterr().out
    assert all(f"measured {name} in " in out for name in ROWS)
    assert out.count("25 MiB fp32, in") >= 2  # in both tables, which fold the rest of the name
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert list(rows) == list(ROWS)
    results = report.results(rows)
    assert {one.why for one in results if one.own is None} == {"not in a quick run"}
    need_hosts = {"nodes", "small_nodes", "control", "topk", "daso", "local_sgd", "fast_nodes", "levels"}
    assert {name for name, row in rows.items() if "not in a quick run" in str(row)} == need_hosts
    assert all(one.kept == one.of for one in results)
    page = (tmp_path / "table.md").read_text()
    assert page == f"{report.peers_table(rows)}\n{report.goals_table(rows)}"
    assert "| 25 MiB fp32, in the pool, 2 ranks | " in page
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_one_row_into_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured with others about or not, it takes the place of what was stored, and no other row moves."""
    for name in ("SHORT", "PEERS", "GOALS"):
        part = getattr(report, name)
        copy = dataclasses.replace(part, page=tmp_path / f"{name}.md")
        copy.page.write_text(part.page.read_text())
        monkeypatch.setattr(report, name, copy)
    stored = tmp_path / report.STORED.name
    stored.write_text(report.STORED.read_text())
    monkeypatch.setattr(report, "STORED", stored)
    monkeypatch.setattr(report, "PICTURE", tmp_path / "picture.png")
    before = report.read()
    table.main(["--quick", "--rows", "straggler", "--docs", "--output", str(tmp_path / "out")])
    after = report.read()
    assert list(after) == list(before)
    assert {name for name in after if after[name] != before[name]} == {"straggler"}
    (wait,) = report.results({"straggler": after["straggler"]})
    assert (wait.own is None) == bool(wait.why)
    said = wait.why or f"{wait.kept} of 3"
    assert said in report.PEERS.page.read_text()
    head = report.GOALS.page.read_text().replace("\n", " ").partition("| work |")[0]
    (measured,) = re.findall(r"`straggler`(?:, `\w+`)*: .*?(\d{4}-\d\d-\d\d)", head)
    assert measured == after["straggler"]["day"]
    assert not any("found" in row for row in after.values())
    shares = json.loads((tmp_path / "out" / "table.json").read_text())["rows"]["straggler"]["found"]["others"]
    assert len(shares) == 3


@pytest.mark.nightly
@pytest.mark.timeout(600)  # 26 steps in eleven ways
@pytest.mark.skipif(bool(why_not()), reason="no rig")
def test_gradientflow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every contender trains: its ranks end with the same weights, and send no fewer bytes than they must."""
    gradientflow.main(["--mbit", "1000", "--repetitions", "2", "--output", str(tmp_path)])
    assert f"1000 Mbit/s, {WARMUPS + 2} steps, median of" in capsys.readouterr().out
    (wire,) = json.loads((tmp_path / "gradientflow.json").read_text())["wires"]
    assert len(wire["rows"]) == len(GRADIENTFLOW)
    assert all(row["sent"] >= row["least"] for row in wire["rows"])
    assert (tmp_path / "gradientflow.png").read_bytes().startswith(b"\x89PNG")


def test_a_row_that_fails_is_a_line_that_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise launch.JobError("rank 1 fell over", 3)

    monkeypatch.setattr(launch, "run_ranks", fail)
    table.main(["--quick", "--rows", "small", "--output", str(tmp_path)])
    assert "not measured: benchmarks: rank 1 fell over" in capsys.readouterr().out


@pytest.mark.slow
def test_a_job_that_fails_ends_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"models": ["none such"], "ways": ["none"], "repetitions": 1}
    with pytest.raises(SystemExit) as ended, launch.ending_in_one_line():
        launch.run_ranks(launch.find_launcher(), "benchmarks.workers.train_step", 1, spec, timeout=60)
    assert ended.value.code not in (0, None)
    assert "failed: exit code" in capsys.readouterr().err


def test_a_job_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = f"import os, pathlib, time\npathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n"
    (tmp_path / "hangs.py").write_text(f"{program}time.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}")
    for limit_s in (6, 24, 48):
        with pytest.raises(launch.JobError, match=f"did not end within {limit_s} s"):
            launch.run_ranks(launch.find_launcher(), "hangs", 1, {}, timeout=limit_s)
        if pid.exists() and pid.read_text():  # else it was so late that the limit ended its start
            break
    rank = Path("/proc") / pid.read_text()  # mpirun has signalled it, and has not waited for it
    wait_until(lambda: not rank.exists(), 60, "the rank still runs")


def test_a_worker_alone_says_how_to_start_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(RuntimeError, match=r"python -m benchmarks\.table"):
        launch.own_rank()


def test_no_mpirun_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ROUNDELAY_MPI_HOME", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(launch.JobError, match="no mpirun found"):
        launch.find_launcher()
