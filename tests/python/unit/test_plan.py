"""`roundelay plan` as a user runs it, and the predictions behind it."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from statistics import fmean

import pytest

from roundelay import _model
from roundelay.plan import machines, outlook, shapes, ways
from roundelay.plan.cli import main
from roundelay.plan.prediction import predict
from roundelay.plan.workload import Roofline, from_shape
from unit.test_plan_inputs import timeline

ROOT = Path(__file__).resolve().parents[3]
STEP = from_shape(shapes.resnet50(), 0.12, 64)
RESNET = ["--model", "resnet50", "--compute", "0.12s", "--batch-size", "64"]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(timeline(2, 6)))
    return path


def test_a_timeline_becomes_a_table_advice_and_a_picture(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, numbers = tmp_path / "plan.png", tmp_path / "plan.json"
    arguments = ["--from", str(job), "--nodes", "1,2,4", "--ranks-per-node", "2", "--inter", "1Mbit"]
    arguments += ["--price", "12.5", "--output", str(picture), "--json", str(numbers)]
    assert main(arguments) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "steps 2 to 5 (4 of 2 ranks, medians)" in out
    assert "3 gradients, 24.3 kB" in out
    assert "cost/1,000 steps" in out
    assert "node link 1 Mbit/s" in out
    assert "links are stated, not measured" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    plan = json.loads(numbers.read_text())
    assert {row["nodes"] for row in plan["rows"]} == {1, 2, 4}
    for row in plan["rows"]:
        assert row["low"] <= row["seconds"] <= row["high"]
        assert row["seconds"] == pytest.approx(row["compute"] + row["exposed"], rel=1e-6)
        assert row["cost"] == pytest.approx(12.5 * row["nodes"] * 1000 * row["seconds"] / 3600)
    dense = next(row for row in plan["rows"] if row["strategy"] == "dense" and row["nodes"] == 4)
    # 24,256 bytes over 4 nodes: 2 * 3 / 4 * 24,256 bytes leave each node at 125,000 bytes a second.
    assert dense["bytes"][1] == pytest.approx(36_384, rel=1e-3)
    assert dense["exposed"] > 0.2
    assert dense["limit"] == "node link"
    assert plan["advice"] in out


def test_a_known_model_and_what_if(capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--nodes", "16", "--ranks-per-node", "8", "--inter", "10Gbit", "--intra", "300Gbit"]
    assert main([*RESNET, *where, "--what-if", "inter=100Gbit", "--json", "-"]) == 0
    plan = json.loads(capsys.readouterr().out)
    before, after = (plan["rows"], plan["what_if"]["rows"])
    assert plan["what_if"]["change"] == "inter=100Gbit"
    assert before[0]["strategy"] == after[0]["strategy"] == "dense"
    assert after[0]["seconds"] < before[0]["seconds"]
    assert "stay with dense" in plan["what_if"]["advice"]
    assert main([*RESNET, "--nodes", "2", "--what-if", "nodes=5", "--json", "-"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert {row["nodes"] for row in plan["rows"]} == {2}
    assert {row["nodes"] for row in plan["what_if"]["rows"]} == {5}
    assert "On 5 nodes" in plan["what_if"]["advice"]


def test_an_epoch_costs_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    epoch = ["--nodes", "16", "--price", "12.5", "--epoch-samples", "1281167", "--strategies", "dense"]
    assert main([*RESNET, *epoch, "--json", "-"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["cost"] == pytest.approx(12.5 * 16 / 3600 * 1281167 / (16 * 64) * row["seconds"])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "--from"),
        (["--model", "resnet51", "--compute", "1s"], "resnet101"),
        (["--model", "resnet50"], "--compute"),
        ([*RESNET, "--inter", "10"], "--inter"),
        ([*RESNET, "--nodes", "2,0"], "more than 0"),
        ([*RESNET, "--nodes", "2,x"], "whole number"),
        ([*RESNET, "--nodes", "1000000"], "ranks"),
        ([*RESNET, "--ranks-per-node", "-8"], "--ranks-per-node"),
        ([*RESNET, "--strategies", "dense,foo"], "power_sgd"),
        ([*RESNET, "--strategies", ""], "--strategies"),
        ([*RESNET, "--price", "cheap"], "--price"),
        ([*RESNET, "--output", "plan.pdf"], ".png"),
        ([*RESNET, "--cluster", "none.yaml"], "none.yaml"),
        ([*RESNET, "--tuning", "none.json"], "none.json"),
        ([*RESNET, "--what-if", "faster"], "inter=25Gbit"),
        ([*RESNET, "--what-if", "speed=3"], "--what-if: 'speed' is unknown; known are nodes, ranks_per_node"),
        ([*RESNET, "--what-if", "speed=3"], "price, latency"),
        ([*RESNET, "--what-if", "inter=3"], "--what-if: '3' has no unit"),
        ([*RESNET, "--what-if", "nodes=1000000"], "more than 65536 ranks"),
        ([*RESNET, "--nodes", "-3"], "--nodes: '-3' must be more than 0"),
        ([*RESNET, "--nodes", "1,,2"], "--nodes: '' is no whole number"),
        ([*RESNET, "--nodes"], "--nodes: expected one argument; `roundelay plan --help`"),
        ([*RESNET, "--node", "3"], "--node 3; `roundelay plan --help`"),
        (["--model", "resnet50", "--compute", "-1s"], "--compute: expected one argument"),
        (["--model", "resnet50", "--compute", "0s"], "--compute: '0s' must be more than 0"),
        (["--model", "resnet50", "--compute", "1s", "--batch-size", "0"], "--batch-size: '0'"),
        (["--model", "resnet50", "--flops", "1T", "--membw", "3"], "--membw: '3' has no unit"),
        ([*RESNET, "--epoch-samples", "1e9"], "--epoch-samples: '1e9'"),
        (["--model", "resnet50", "--compute", "1s", "--epoch-samples", "9"], "needs --batch-size"),
        (
            [*RESNET, "--output", "none/plan.png"],
            "--output: cannot write 'none/plan.png': there is no",
        ),
        ([*RESNET, "--json", "none/plan.json"], "--json: cannot write 'none/plan.json': there is no folder"),
        ([*RESNET, "--json", "/"], "--json: cannot write '/': it is a folder"),
        ([*RESNET, "--study", "batch,speed"], "membw"),
        ([*RESNET, "--study", "batch", "--what-if", "inter=1Gbit"], "--what-if"),
        ([*RESNET, "--flops", "1T"], "--flops"),
        (["--model", "resnet50", "--flops", "1X", "--membw", "1GB/s"], "flop/s"),
        (["--from", "none.json"], "none.json"),
        (["--from", "none.json", "--steps", "3"], "--steps"),
        (["--from", "none.json", "--compute", "1s"], "--compute"),
    ],
)
def test_bad_input_is_one_line_with_the_cure(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    assert error.startswith("roundelay plan: ")
    assert word in error


def test_a_file_that_is_no_timeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "text"
    path.write_text("hello")
    assert main(["--from", str(path)]) == 2
    assert "no trace" in capsys.readouterr().err


def test_the_slowest_rank_is_that_of_the_simulation() -> None:
    """Without communication a simulated step takes as long as the slowest rank's computing."""
    cluster = _model.Cluster([_model.Level(16, _model.Link(0.0, 1e15))])
    empty = _model.dense(cluster, 4.0)
    outcome = _model.simulate(cluster, 1.0, 0.0, 0.0, [(0.0, empty)], steps=4000, jitter=0.1)
    quantiles = [outlook.slowest(16, 0.1, (index + 0.5) / 200) for index in range(200)]
    assert outcome.seconds / 4000 == pytest.approx(fmean(quantiles), rel=0.005)
    assert outlook.slowest(16, 0.0, 0.9) == 1.0


def test_an_interval_grows_with_the_links_error_and_with_jitter() -> None:
    choice = ways.parse("dense", STEP)
    four = machines.Machines(4, 1)

    def width(error: float, jitter: float) -> float:
        row = outlook.look(STEP, dataclasses.replace(four, error=error), choice, jitter)
        return row.high - row.low

    assert width(0.0, 0.0) == 0.0
    assert 0 < width(0.1, 0.0) < width(0.3, 0.0)
    assert width(0.1, 0.05) > width(0.1, 0.0)


def test_what_limits_a_step() -> None:
    def limit(text: str, **how: str) -> str:
        base = machines.Machines(4, 2)
        for key, value in how.items():
            base = machines.changed(base, f"{key}={value}")
        return outlook.look(STEP, base, ways.parse(text, STEP), 0.0).limit

    assert limit("dense", inter="100Gbit", intra="1000Gbit", memory="1000GB/s") == "compute"
    assert limit("dense", inter="1Gbit") == "node link"
    assert limit("dense", inter="1000Gbit", intra="1Gbit") == "in the node"
    assert limit("dense", inter="100Gbit", latency="1s") == "latency"
    assert limit("dense", inter="1000Gbit", intra="1000Gbit", memory="10MB/s") == "memory"


def test_the_overhead_costs_what_it_is() -> None:
    """One bucket at the end of backward."""
    cluster = machines.Machines(2, 1, inter=machines.Wire(1e9, 1e-3, reduce=0.0)).model()
    step = dataclasses.replace(STEP, gradients=STEP.gradients[-1:])
    choice = ways.parse("dense", step)
    plain = predict(step, cluster, choice).seconds
    late = predict(step, cluster, choice, overhead=0.25).seconds
    assert late - plain == pytest.approx(0.25)


def test_advice_says_when_nothing_pays_and_how_sure_it_is() -> None:
    fast = machines.changed(machines.Machines(ranks_per_node=8), "inter=100Gbit")
    assert "stay with dense" in outlook.advice(outlook.table(STEP, fast, [2, 4], ["dense", "bf16"]))
    slow = machines.changed(machines.Machines(), "inter=1Gbit")
    text = outlook.advice(outlook.table(STEP, slow, [4], ["dense", "bf16", "csc:keep=0.1"]))
    assert "On 4 nodes take csc:keep=0.1" in text
    assert "(sure: the intervals do not overlap, with the model's own error of 5.4% too)" in text
    assert "It is lossy: it changes what is learned, so compare losses first." in text
    assert "Of those that are not lossy dense:wire=bf16 (rounding) is the fastest" in text
    half = outlook.advice(outlook.table(STEP, slow, [4], ["dense", "bf16"]))
    assert "On 4 nodes take dense:wire=bf16" in half
    assert half.endswith("It is rounding: gradients travel in a half type, so compare losses.")
    unsure = dataclasses.replace(slow, error=3.0)
    assert "not sure" in outlook.advice(outlook.table(STEP, unsure, [4], ["dense", "bf16"]))


def test_advice_is_not_sure_of_a_gain_that_the_models_own_error_may_have_made() -> None:
    row = outlook.look(STEP, machines.Machines(4), ways.parse("dense", STEP), 0.0)
    plain = dataclasses.replace(row, seconds=1.0, low=0.999, high=1.001)

    def advice(seconds: float) -> str:
        fast = dataclasses.replace(plain, strategy="bf16", seconds=seconds, low=seconds, high=seconds)
        return outlook.advice([plain, fast])

    assert "not sure: with the model's own error of 5.4% the intervals overlap" in advice(0.94)
    assert "(sure" in advice(0.85)
    measured = json.loads((ROOT / "docs" / "results" / "plan.json").read_text())["error_90"]
    assert pytest.approx(measured, abs=5e-4) == outlook.MODEL_ERROR


def test_the_error_is_said_of_what_it_was_measured_for(capsys: pytest.CaptureFixture[str]) -> None:
    slow = ["--nodes", "4", "--inter", "100Mbit", "--strategies"]
    assert main([*RESNET, *slow, "dense,power_sgd:rank=1,csc:keep=0.5"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "within 5.4% on one emulated rig, for dense, dense:wire=bf16, csc, topk, local_sgd" in out
    assert "note: the model's own error was not measured for power_sgd:rank=1: measure a step first" in out
    assert "not sure: the model's own error was not measured for power_sgd:rank=1, so measure both" in out
    assert main([*RESNET, *slow, "daso"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "note: strategy 'daso' needs total_epochs, the number of epochs of the whole training: add" in out
    assert main([*RESNET, *slow, "dense,csc:keep=0.5"]) == 0
    out = capsys.readouterr().out
    assert "error was not measured" not in out
    assert "(sure: " in out


def test_the_measured_strategies_are_those_of_the_page() -> None:
    stored = json.loads((ROOT / "docs" / "results" / "plan.json").read_text())
    every = {cell["strategy"] for half in ("fitted", "tested") for cell in stored[half]}
    assert all(ways.parse(text, STEP).measured for text in every)
    names = {text if text.startswith("dense") else text.partition(":")[0] for text in every}
    assert names == set(ways.MEASURED)
    for text in ("power_sgd:rank=2", "daso", "csc:keep=0.1,wire=bf16", "dense:wire=fp16"):
        assert not ways.parse(text, STEP).measured


def test_one_rank_is_not_more_efficient_than_its_computing() -> None:
    one = outlook.look(STEP, machines.Machines(1), ways.parse("dense", STEP), 0.2)
    assert one.efficiency == 1.0


def test_the_output_says_what_is_taken_by_formula(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RESNET, "--nodes", "2"]) == 0
    assert "a stage of a collective takes the time of its formula" in capsys.readouterr().out


def test_a_study_says_what_memory_leaves_as_it_is(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--nodes", "4", "--strategies", "dense", "--study"]
    note = "note: membw varies casts and sums alone"
    assert main(["--from", str(job), *where, "membw"]) == 0
    assert note in capsys.readouterr().out
    assert main([*RESNET, *where, "link"]) == 0
    out = capsys.readouterr().out
    assert note not in out
    assert re.search(r"x 1 +\d+ ms, \d+% *\n +\(\d+ ms to \d+ ms\)", out)
    roofline = ["--model", "resnet50", "--flops", "10T", "--membw", "700GB/s"]
    assert main([*roofline, *where, "membw"]) == 0
    assert note not in capsys.readouterr().out


def test_a_study_varies_one_quantity_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--nodes", "8", "--inter", "1Gbit", "--strategies", "dense", "--output", str(tmp_path / "s.svg")]
    model = ["--model", "resnet50", "--batch-size", "64", "--flops", "10T", "--membw", "700GB/s"]
    every = "batch,flops,membw,link,nodes"
    assert main([*model, *where, "--study", every, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["study"]
    assert (tmp_path / "s.svg").exists()
    middle = {one: lines[2]["rows"][0]["seconds"] for one, lines in found.items()}
    assert list(found) == every.split(",")
    assert len(set(middle.values())) == 1

    def column(quantity: str, name: str) -> list[float]:
        return [line["rows"][0][name] for line in found[quantity]]

    assert column("nodes", "nodes") == [2, 4, 8, 16, 32]
    assert column("batch", "efficiency") == sorted(column("batch", "efficiency"))
    assert column("flops", "efficiency") == sorted(column("flops", "efficiency"), reverse=True)
    assert column("link", "seconds") == sorted(column("link", "seconds"), reverse=True)
    assert column("membw", "compute")[0] > column("membw", "compute")[-1]


def test_a_roofline_is_the_larger_of_its_bounds() -> None:
    shape = shapes.vgg16()
    slow_memory, slow_arithmetic = Roofline(1e30, 1e9), Roofline(1e9, 1e30)
    last = shape.layers[-1]
    assert slow_arithmetic.seconds(shape, 2.0)[-1] == pytest.approx(2 * last.flops / 1e9)
    # fc8: 4096 inputs and 1000 outputs of each sample, and its weights and biases.
    assert slow_memory.seconds(shape, 2.0)[-1] == pytest.approx(4 * (2 * 5096 + 4096 * 1000 + 1000) / 1e9)
    step = slow_arithmetic.workload(shape, 2.0)
    assert step.forward == pytest.approx(2 * shape.flops / 1e9)
    assert step.backward == pytest.approx(2 * step.forward)


def test_many_nodes_take_little_time_to_predict() -> None:
    step = from_shape(shapes.resnet50(), 0.12, 64)
    rows = outlook.table(step, machines.Machines(ranks_per_node=8), [512], ["dense", "daso"], 0.02)
    assert all(math.isfinite(row.seconds) for row in rows)
