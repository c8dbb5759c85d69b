"""tools/gpu_check.sh: what a step's end means, what is kept of it; and a dry run of the steps."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import check as gpu_check
from benchmarks.gpu import figures, mpi, runner, selection, steps, techniques, wheels
from benchmarks.gpu.check import checks, sharing
from benchmarks.gpu.runner import Check, Phase, Place, Step
from benchmarks.report import gpu as report
from benchmarks.table.line import Goal, Line, missing
from in_time import wait_until
from launch_job import state_of

_FOLDERS = ("python", "tests/python/support", ".")
_ON_FAKE = {"PYTHONPATH": os.pathsep.join(str(runner.ROOT / folder) for folder in _FOLDERS)}


def _python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place("fakegpu", Path("build"), tmp_path, {"SAID": "so"})


def _measured(found: Mapping[str, Any]) -> list[Line]:
    value = found["value"]
    return [missing("work", "no peer") if value is None else Line("work", "1 s", value=value, goal=Goal(2.0))]


@pytest.mark.parametrize(
    ("value", "ok", "message"),
    [(2.0, True, ""), (1.5, False, "work: 1 s 1.5x >= 2x"), (None, None, "work: not measured: no peer")],
)
def test_a_check_passes_if_its_figure_reaches_the_goal(
    value: float | None, ok: bool | None, message: str, place: Place
) -> None:
    program = f"print('words'); print('''{json.dumps({'value': value}, indent=1)}''')"
    check = runner.run(Step("one, 2 of it", 60, _python(program), lines=_measured), place, 60)
    assert (check.ok, check.figures, check.message) == (ok, {"value": value}, message)
    assert (place.output / "one_2_of_it.txt").read_text().startswith("words\n")


def test_a_failure_says_its_last_words(place: Place) -> None:
    program = "import os, sys; print('{'); print(os.environ['SAID']); sys.exit(3)"
    check = runner.run(Step("one", 60, _python(program)), place, 60)
    assert (check.ok, check.message) == (False, "exit code 3\n{\nso")
    assert runner.run(Step("one", 60, ["./none"]), place, 60).message.startswith("cannot be started: ")


def test_ranks_that_end_well_without_their_word_have_failed(place: Place) -> None:
    program = "import os; print('all passed' if os.environ['LOCAL_RANK'] == '0' else 'nothing to do')"
    check = runner.run(Step("one", 60, _python(program), ranks=2, says="all passed"), place, 60)
    assert not check.ok
    assert check.message.startswith("only 1 of 2 ranks said 'all passed'\n")
    assert runner.run(Step("one", 60, _python(program), ranks=1, says="all passed"), place, 60).ok


def test_what_hangs_is_ended_with_all_that_it_started(place: Place) -> None:
    pid = place.output / "pid"
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    program = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {stubborn!r}])\n"
    program += f"open({str(pid)!r}, 'w').write(str(p.pid)); print('began', flush=True); p.wait()"
    for limit_s in (3, 12, 48):
        check = runner.run(Step("one", 600, _python(program)), place, limit_s)
        if "began" in check.message:  # else it was so late that the limit ended its start
            break
    assert (check.ok, check.message) == (False, f"did not end within {limit_s} s, and was ended\nbegan")
    wait_until(lambda: state_of(int(pid.read_text())) == "Z", 60, "the program's own child still runs")


def test_without_a_vital_step_the_others_have_no_meaning(place: Place) -> None:
    build = Step("build", 60, _python("raise SystemExit(1)"), vital=True)
    phases = [Phase([build], 60), Phase([Step("one", 60, _python(""))], 60, at_once=2)]
    assert [(check.ok, check.message) for check in checks(phases, place, dry=False)] == [
        (False, "exit code 1"),
        (None, "not run: 'build' failed"),
    ]


def test_after_a_vital_step_with_nothing_to_measure_its_reason_stands_for_the_others(place: Place) -> None:
    which = _python("import json; print(json.dumps({'why_not': 'none here'}))")
    first = Step("which MPI", 60, which, lines=figures.mpi_refuses, vital=True)
    phase = Phase([first, Step("one", 60, _python("raise SystemExit(1)"))], 60)
    assert [(check.ok, check.message) for check in checks([phase], place, dry=False)] == [
        (None, "fabric mpi: not measured: none here"),
        (None, "not run: fabric mpi: not measured: none here"),
    ]
    absent = Phase([Step("build", 60, [], dry="built", vital=True), Step("one", 60, _python(""))], 60)
    assert [check.ok for check in checks([absent], place, dry=True)] == [None, True]


def _meeting(place: Place, own: str, other: str) -> Step:
    """A step that ends when another one has begun."""
    program = f"""
import pathlib, time
pathlib.Path({str(place.output / own)!r}).touch()
while not pathlib.Path({str(place.output / other)!r}).exists(): time.sleep(0.01)
"""
    return Step(own, 60, _python(program))


def test_steps_of_a_phase_run_side_by_side(place: Place) -> None:
    pair = [_meeting(place, "one", "other"), _meeting(place, "other", "one")]
    assert all(check.ok for check in checks([Phase(pair, 60, at_once=2)], place, dry=False))


def test_who_stops_listening_stops_the_steps(place: Place) -> None:
    alone = _meeting(place, "alone", "nobody")
    course = checks([Phase([Step("one", 60, _python("")), alone], 600, at_once=2)], place, dry=False)
    assert next(course).name == "one"
    course.close()  # waits for the other step's end, and it has no other reason to end
    assert (place.output / "alone.txt").exists()


def test_a_phase_ends_in_its_time(place: Place) -> None:
    hanging = Step("hangs", 60, _python("import time; time.sleep(600)"))
    phase = Phase([hanging, Step("late", 60, _python(""))], 3)
    first, second = checks([phase], place, dry=False)
    assert (first.ok, second.message) == (False, "not run: the 3 s were over")


def test_what_is_timed_runs_alone_and_early_and_mpi_last() -> None:
    first, rest, last = steps.PHASES
    assert (first.at_once, last.at_once) == (1, 1)
    assert all(step.lines is Step.lines for step in rest.steps)  # none has measurements
    assert {step.name for step in first.steps} >= {"bandwidth of kernels", "host time of a step"}
    assert all("MPI" in step.name for step in last.steps)
    assert len({step.name for step in steps.STEPS}) == len(steps.STEPS)


def test_results_are_written_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "gpu.json"
    program = f"import json; print(json.dumps({{'seen': json.load(open({str(output)!r}))['checks']}}))"
    names = [step.name for step in steps.STEPS[:2]]
    pair = [Step(names[0], 60, _python("")), Step(names[1], 60, _python(program))]
    monkeypatch.setattr(gpu_check, "PHASES", [Phase(pair, 60)])
    assert gpu_check.main(["--dry-run", "--output", str(output)]) == 0
    found = [Check(**check) for check in json.loads(output.read_text())["checks"]]
    assert [check.name for check in found] == names
    assert found[1].figures is not None
    assert [check["name"] for check in found[1].figures["seen"]] == names[:1]
    assert f"wrote {output}" in capsys.readouterr().out


def test_an_mpi_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(gpu_check, "PHASES", [Phase([Step("which MPI", 60, _python(""))], 60)])
    mpirun = tmp_path / "bin" / "mpirun"
    mpirun.parent.mkdir()
    mpirun.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.9'\n")
    mpirun.chmod(0o755)
    output = tmp_path / "gpu.json"
    gpu_check.main(["--dry-run", "--output", str(output), "--mpi", str(tmp_path)])
    assert json.loads(output.read_text())["mpi"] == "Open MPI 5.0.9, on PATH"


def test_which_mpi_there_is_and_why_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert mpi.which({"PATH": ""})["mpi"] == ""
    assert mpi.which({"PATH": ""})["why_not"].startswith("no mpirun found on PATH")
    mpirun = tmp_path / "mpirun"
    mpirun.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.3'\n")
    mpirun.chmod(0o755)
    name = "Open MPI 5.0.3, on PATH"
    why_not = f"{name} has no mpicxx: install the MPI's files for development"
    assert mpi.which({"PATH": str(tmp_path)}) == {"mpi": name, "why_not": why_not}
    mpirun.with_name("mpicxx").symlink_to(mpirun)
    assert mpi.which({"PATH": str(tmp_path)}) == {"mpi": name, "why_not": ""}


def test_what_a_machine_without_gpu_cannot_run_is_not_ok(place: Place) -> None:
    gpu = Step("one", 60, _python("raise SystemExit(1)"), dry="it needs a GPU")
    phase = Phase([gpu, Step("two", 60, _python(""))], 60)
    assert [(check.ok, check.message) for check in checks([phase], place, dry=True)] == [
        (None, "not run: it needs a GPU"),
        (True, ""),
    ]


def test_ranks_on_one_gpu_are_hosts_to_nccl_until_it_takes_them(place: Place) -> None:
    assert dict(sharing((2, 30, 3))) == {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    assert sharing((2, 28, 9))["NCCL_NET"] == "Socket"
    words = place.words(Step("one", 60, ["program", "{device}"], ranks=2))
    assert words[1:] == ["-m", "roundelay.run.cli", "-np", "2", "--gloo", "program", "fakegpu"]
    words = place.words(Step("one", 60, ["program"], ranks=2, flags=("--mpi", "--pointer-cache")))
    assert words[3:] == ["-np", "2", "--mpi", "--pointer-cache", "program"]


def test_packages_that_are_missing() -> None:
    assert wheels.missing("# all\nnumpy\nno-such-package-here  # why\n\n") == ["no-such-package-here"]
    assert wheels.missing(wheels.REQUIREMENTS.read_text()) == []


def test_host_time_is_beside_ddp() -> None:
    seconds = {who: {"median": time} for who, time in (("none", 1e-3), ("roundelay", 3e-3), ("ddp", 2e-3))}
    (line,) = figures.host_time({"cells": [{"model": "mlp", "seconds": seconds}]})
    assert (line.work, line.value, line.met) == ("host time of a step, mlp", 1.5, False)
    del seconds["ddp"]
    (line,) = figures.host_time({"missing": "no group", "cells": [{"model": "mlp", "seconds": seconds}]})
    assert (line.own, line.met) == ("not measured: no DDP: no group", None)


def test_of_each_size_the_slowest_kernel_counts() -> None:
    sizes = [
        (1 << 20, {"pack": 0.9, "cast": 0.8}),
        (4 << 20, {"pack": 0.5, "cast": 0.8}),
        (25 << 20, {"pack": 0.95, "cast": 0.9}),
        (100 << 20, {"pack": 0.95, "cast": 0.89}),
    ]
    plain = {"copy_gb_per_s": 2000.4, "copy_us": 10.0, "launch_us": 1.5, "selections": {}}
    cells = [{"bytes": size, "fractions": found, **plain} for size, found in sizes]
    assert [line.cells() for line in figures.kernels({"sizes": cells})] == [
        ["slowest of 2 kernels, 1 MiB", "cast", "beyond copy and launch 11.5 us", "1 us", "<= 2 us", "yes"],
        ["slowest of 2 kernels, 4 MiB", "pack", "copy of 2000 GB/s", "0.5x", ">= 0.6x", "no"],
        ["slowest of 2 kernels, 25 MiB", "cast", "copy of 2000 GB/s", "0.9x", ">= 0.85x", "yes"],
        ["slowest of 2 kernels, 100 MiB", "cast", "copy of 2000 GB/s", "0.89x", ">= 0.9x", "no"],
    ]


def test_a_selection_is_beside_its_reads() -> None:
    selections = {
        "mstopk": {"us": 60.0, "reads": 8},
        "radix": {"us": 30.0, "reads": 4},
        "radix_equal": {"us": 60.0, "reads": 10},
    }
    cell = {"fractions": {"pack": 0.9}, "copy_gb_per_s": 1.0, "copy_us": 10.0, "launch_us": 1.0}
    sizes = [{"bytes": size, **cell, "selections": selections} for size in (1 << 20, 100 << 20)]
    small, large = (figures.kernels({"sizes": [one]})[1:] for one in sizes)
    assert [line.cells() for line in small] == [
        ["mstopk, 1 % of 1 MiB", "60 us", "8 reads 40 us", "1.5x", "<= 2x", "yes"],
        ["radix, 1 % of 1 MiB", "30 us", "", "30 us", "<= 40 us", "yes"],
        ["radix_equal, 1 % of 1 MiB", "60 us", "10 reads 50 us", "1.2x", "", ""],
    ]
    assert [line.cells() for line in large][1] == (
        ["radix, 1 % of 100 MiB", "30 us", "4 reads 20 us", "1.5x", "<= 1.3x", "no"]
    )


def test_low_rank_products_are_beside_a_copy() -> None:
    products = {"project_float32": 0.8, "expand_bfloat16": 0.65}
    cell = {"fractions": {"pack": 0.9}, "copy_gb_per_s": 2000.0, "copy_us": 10.0, "products": products}
    sizes = [{"bytes": size, **cell, "selections": {}} for size in (4 << 20, 25 << 20)]
    assert [figures.kernels({"sizes": [one]})[1].cells() for one in sizes] == [
        ["slowest of 2 low-rank products, 4 MiB", "expand_bfloat16", "copy of 2000 GB/s", "0.65x", "", ""],
        [
            *("slowest of 2 low-rank products, 25 MiB", "expand_bfloat16", "copy of 2000 GB/s"),
            *("0.65x", ">= 0.7x", "no"),
        ],
    ]


def test_a_selection_is_beside_topk() -> None:
    seconds = {"radix": {"median": 1e-3}, "mstopk": {"median": 2e-3}, "torch.topk": {"median": 8e-3}}
    found = {"values": 64 << 20, "seconds": seconds, "missing": {}}
    assert [line.cells() for line in figures.selections(found)] == [
        ["radix, 1 % of 64 Mi values", "1 ms", "torch.topk 8 ms", "8x", ">= 5x", "yes"],
        ["mstopk, 1 % of 64 Mi values", "2 ms", "torch.topk 8 ms", "4x", "", ""],
    ]
    found["missing"] = {"torch.topk": "no memory"}
    assert [line.own for line in figures.selections(found)] == ["not measured: no memory"] * 2


def test_a_technique_is_beside_a_dense_step_with_the_part_that_it_sends() -> None:
    seconds = {"none": {"median": 0.02}, "dense": {"median": 0.025}, "csc": {"median": 0.03}}
    cell = {"model": "gpt2", "seconds": seconds, "bytes": {"dense": 200.0, "csc": 3.0}}
    lines = figures.techniques({"cells": [{**cell, "missing": {"power_sgd": "no GPU"}}]})
    assert [line.cells()[:4] for line in lines] == [
        ["a step of gpt2 with csc, which sends 1.50%", "30 ms", "dense 25 ms", "1.2x"],
        ["a step of gpt2 with power_sgd", "not measured: no GPU", "", ""],
    ]


def test_the_cache_is_beside_the_driver_and_the_device_beside_the_host() -> None:
    found = {
        "questions": {"threads": {"1": {"cache_ns": 12.4, "driver_ns": 248.0}}},
        "sums": [{"bytes": 4096, "device_gb_per_s": 0.5, "host_gb_per_s": 0.25}],
    }
    assert [line.cells()[:4] for line in figures.pointers(found)] == [
        ["a question where memory lies, 1 thread", "12 ns", "driver 248 ns", "0.05x"],
        ["a sum on the device, 4 KiB", "0.5 GB/s", "over the host 0.25 GB/s", "2x"],
    ]


def test_mpi_is_beside_the_other_fabrics_and_its_questions_are_counted() -> None:
    found = {
        "ranks": 2,
        "seconds": {"mpi": {"4096": 3e-5}, "staged": {"4096": 6e-5}, mpi.CACHED: {"4096": 2e-5}},
        "missing": {"nccl": "ROUNDELAY_GPU_FABRIC=nccl, but rank 0 has no NCCL"},
        "questions": {"asked": 5000, "passed_on": 12},
    }
    assert [line.cells()[:4] for line in figures.over_mpi(found)] == [
        ["allreduce of 4 KiB by 2 ranks over MPI", "30 us", "staged 60 us", "0.5x"],
        ["allreduce of 4 KiB by 2 ranks over MPI", "30 us", "mpi with --pointer-cache 20 us", "1.5x"],
        ["questions to the driver in one rank, with --pointer-cache", "12", "of 5000", "0.0024x"],
    ]


def _result(dry: bool, checks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = ("gpu", "driver", "torch", "cuda", "nccl", "mpi", "python")
    return {
        **{name: f"{name} 1" for name in names},
        "date": "2026-01-01T00:00:00+00:00",
        "dry_run": dry,
        "checks": checks,
    }


def test_the_page_takes_a_real_result_only() -> None:
    seconds = {who: {"median": 2e-3} for who in ("none", "roundelay", "ddp")}
    measured = {"cells": [{"model": "mlp", "seconds": seconds}]}
    found = [
        {"name": "build", "ok": False, "seconds": 1.2, "figures": None, "message": "exit code 1\nwords"},
        {"name": "host time of a step", "ok": True, "seconds": 9.0, "figures": measured, "message": ""},
    ]
    assert report.markdown(_result(False, found)).splitlines() == [
        "gpu 1, driver driver 1, torch torch 1, CUDA cuda 1, NCCL nccl 1, MPI mpi 1, Python python 1, "
        "2026-01-01.",
        "",
        "| check | result | seconds | measured |",
        "|---|---|---|---|",
        "| build | FAILED | 1 | exit code 1 |",
        "| host time of a step | ok | 9 | host time of a step, mlp: 2 ms DDP 2 ms 1x <= 1x |",
    ]
    page = report.PART.page.read_text()
    report.PART.filled("")  # it has its marks
    with pytest.raises(SystemExit, match="dry run"):
        report.write_page(_result(True, found))
    assert report.PART.page.read_text() == page


@pytest.mark.slow
def test_techniques_add_to_a_step_on_the_fake_device(place: Place) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu.techniques", "--device", "{device}"]
    check = runner.run(Step("techniques", 240, command, environment=_ON_FAKE), place, 240)
    assert check.figures is not None, check.message
    (cell,) = check.figures["cells"]
    assert {"none", "dense", *techniques.STRATEGIES[:2]} <= cell["seconds"].keys()
    for way in techniques.STRATEGIES:
        assert cell["bytes"].get(way, 0) < 0.1 * cell["bytes"]["dense"]
        assert way in cell["bytes"] or way in cell["missing"]


def test_selections_take_turns_on_the_fake_device(place: Place) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu.selection", "--device", "{device}"]
    check = runner.run(Step("selection", 240, command, environment=_ON_FAKE), place, 240)
    assert check.figures is not None, check.message
    assert check.figures["values"] == 1 << 16
    assert {"radix", "mstopk"} <= check.figures["seconds"].keys()
    assert selection.PEER in check.figures["seconds"] or selection.PEER in check.figures["missing"]


@pytest.mark.slow
def test_a_dry_run_is_honest(tmp_path: Path) -> None:
    output = tmp_path / "gpu.json"
    script = runner.ROOT / "tools" / "gpu_check.sh"
    words = ("configure", "bandwidth", "operations, 2", "host time", "which MPI", "takes", "over MPI, 2")
    command = [str(script), "--dry-run", "--output", str(output), "--steps", *words]
    place = Place("", Path(), tmp_path, {"PYTHON": sys.executable})
    told = runner.run(Step("dry run", 270, command), place, 270)
    assert told.ok, told.message
    result = json.loads(output.read_text())
    assert result["dry_run"]
    checked = result["checks"]
    assert [(check["name"], check["ok"], check["message"]) for check in checked] == [
        ("configure", None, "not run: a dry run takes what is built"),
        ("bandwidth of kernels", None, "not run: it needs a GPU"),
        ("host time of a step", None, checked[2]["message"]),
        ("all operations, 2 ranks", True, ""),
        ("which MPI", True, ""),
        ("configure with MPI", None, "not run: a dry run takes what is built"),
        ("MPI takes the GPU's memory", True, ""),
        ("all operations over MPI, 2 ranks", True, ""),
        ("allreduce over MPI, 2 ranks", True, ""),
    ]
    assert "not measured: no DDP" in checked[2]["message"]
    assert set(checked[-1]["figures"]["seconds"]) == {"mpi", "staged", mpi.CACHED}
    assert "NCCL" in checked[-1]["figures"]["missing"]["nccl"]
