"""What `roundelay plan` reads: quantities, strategies, cluster files, timelines."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from roundelay._internal.spelling.form import cut_list
from roundelay.plan import machines, recorded, shapes, units, ways
from roundelay.plan.prediction import predict
from roundelay.plan.units import PlanError
from roundelay.plan.workload import from_shape
from roundelay.timeline import events
from roundelay.tuning import file as tuning_file

STEP_US = 100_000.0
SIZES = {"g.last": (64, 8), "g.middle": (1000, 10), "g.first": (5000, 50)}  # elements, rows
READY_US = {"g.last": 0.0, "g.middle": 20_000.0, "g.first": 50_000.0}


def timeline(ranks: int, steps: int, slow_rank: float = 1.0) -> list[dict[str, Any]]:
    """20 ms forward, 50 ms backward with 10 ms of waiting behind the first gradient, 5 ms update."""
    made: list[dict[str, Any]] = []
    for rank in range(ranks):
        unit = slow_rank if rank == ranks - 1 else 1.0
        for step in range(steps):
            zero = step * STEP_US * unit

            def span(name: str, begin: float, end: float, zero: float = zero, unit: float = unit) -> None:
                where = {"ph": "X", "pid": rank, "tid": 1, "name": name}  # noqa: B023
                made.append({**where, "ts": zero + begin * unit, "dur": (end - begin) * unit})

            span("backward", 25_000, 95_000)
            span("synchronize", 26_000, 36_000)
            span("synchronize", 85_000, 95_000)
            span("step", 95_000, 100_000)
            for name, (elements, rows) in SIZES.items():
                at = 25_000 + READY_US[name] + (10_000 if READY_US[name] else 0)
                arguments = {"tensor": name, "elements": elements, "bytes": 4 * elements, "rows": rows}
                where = {"ph": "i", "pid": rank, "tid": 1, "name": "gradient", "s": "t"}
                made.append({**where, "ts": zero + at * unit, "args": arguments})
    return made


def recording(raw: list[dict[str, Any]], chosen: slice = slice(None)) -> recorded.Recording:
    return recorded.from_trace(events.parse(json.dumps(raw)), chosen)


def test_a_timeline_gives_sizes_order_and_times_without_waiting() -> None:
    found = recording(timeline(2, 6))
    step = found.workload
    assert [(g.name, g.elements, g.shape) for g in step.gradients] == [
        ("g.last", 64, (8, 8)),
        ("g.middle", 1000, (10, 100)),
        ("g.first", 5000, (50, 100)),
    ]
    assert [g.ready for g in step.gradients] == pytest.approx([0.0, 0.020, 0.050])
    assert (step.forward, step.backward, step.update) == pytest.approx((0.025, 0.050, 0.005))
    assert step.element == 4
    assert found.jitter == pytest.approx(0.0, abs=1e-9)
    assert found.steps == (2, 3, 4, 5)
    assert found.ranks == 2


def test_steps_can_be_chosen_and_those_without_all_gradients_do_not_count() -> None:
    raw = timeline(2, 8)
    raw = [e for e in raw if not (e["name"] == "gradient" and e["ts"] < STEP_US)]  # as before the pool
    assert recording(raw, slice(0, 4)).steps == (1, 2, 3)
    assert recording(raw).steps == (3, 4, 5, 6, 7)


def test_ranks_that_differ_are_jitter() -> None:
    assert recording(timeline(2, 6, slow_rank=1.2)).jitter == pytest.approx(1.4826 * 0.0912, rel=0.01)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ([e for e in timeline(2, 6) if e["name"] != "gradient"], "has no gradients"),
        (timeline(2, 2), "has 4 whole steps of 2 ranks, but needs 3 of each"),
    ],
)
def test_a_poor_timeline_says_what_it_lacks(raw: list[dict[str, Any]], text: str, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(PlanError, match=text) as error:
        recorded.load(path, 1.0)
    assert "\n" not in str(error.value)
    assert "roundelayrun -np 1 --timeline-filename" in str(error.value)


def test_times_and_bandwidths_are_parsed_and_shown() -> None:
    assert units.seconds("0.12s") == 0.12
    assert units.seconds("30 us") == pytest.approx(30e-6)
    assert units.seconds("0s", zero=True) == 0
    assert units.bandwidth("10Gbit") == 1.25e9
    assert units.bandwidth("100Mbit/s") == 12.5e6
    assert units.bandwidth("1.5GB/s") == 1.5e9
    assert units.bandwidth("2GiB/s") == 2 * 2**30
    assert units.time_text(0.0123) == "12.3 ms"
    assert [units.time_text(value) for value in (0.9996, 0.9994, 9.996e-4)] == ["1 s", "999 ms", "1 ms"]
    assert [units.bytes_text(value) for value in (999, 999_600)] == ["999 B", "1 MB"]
    assert units.bandwidth_text(0.9996 * 1.25e8) == "1 Gbit/s"
    assert units.date_text("2026-01-02T03:04:05").startswith("2026-01-02 03:04 UTC, ")
    assert units.date_text("last week") == "last week"
    assert units.bandwidth_text(1.25e9) == "10 Gbit/s"
    for text in ("3", "-1s", "0s", "1 hour", "s", "", "nans", "1e999s", "1..2s"):
        with pytest.raises(PlanError):
            units.seconds(text)
    for text in ("10Gb", "10", "-1Gbit", "0Gbit", "Gbit", "10Xbit", "10 parsec"):
        with pytest.raises(PlanError):
            units.bandwidth(text)
    for text in ("0", "-3", "1.5", "many"):
        with pytest.raises(PlanError):
            units.count(text)


def test_strategies_are_cut_at_the_commas_between_them() -> None:
    assert cut_list("dense, csc:keep=0.1,wire=bf16,daso") == ["dense", "csc:keep=0.1,wire=bf16", "daso"]
    assert cut_list("") == []


def test_wrong_strategies_are_named() -> None:
    step = from_shape(shapes.resnet50(), 0.1, 64)
    for text in (
        "foo",
        "dense:wire=int8",
        "dense:keep=0.1",
        "csc:keep=0",
        "csc:keep=1.5",
        "csc:keep=x",
        "csc:keep",
        "topk:index_bits=8",
        "local_sgd:period=0",
        "local_sgd:period=1.5",
        "power_sgd:rank=0",
        "daso:global_skip=-1",
    ):
        with pytest.raises(PlanError) as error:
            ways.parse(text, step)
        assert "\n" not in str(error.value)


def test_each_strategy_sends_the_bytes_of_its_formula() -> None:
    """Between 4 nodes of 2 ranks, for S bytes: 2 (m-1)/m S densely, half of it in bf16, and so on."""
    step = from_shape(shapes.vgg16(), 0.1, 64)
    cluster = machines.Machines(4, 2).model()
    dense = 2 * 3 / 4 * step.bytes

    def between(text: str) -> float:
        return predict(step, cluster, ways.parse(text, step)).bytes[1]

    assert between("dense") == pytest.approx(dense)
    assert between("bf16") == pytest.approx(dense / 2)
    assert between("csc:keep=0.1") == pytest.approx(dense / 10, rel=0.01)
    assert between("topk:density=0.01") == pytest.approx(3 * 0.01 * step.bytes / 4 * 8)
    assert between("local_sgd:period=8") == pytest.approx(dense / 8)
    assert between("daso") == pytest.approx(dense / 4)
    rows, columns = ways.factors(step, 2)
    assert between("power_sgd:rank=2") == pytest.approx(2 * 3 / 4 * 4 * 2 * (rows + columns))


def test_a_matrix_counts_as_factors_where_that_saves_half() -> None:
    step = from_shape(shapes.alexnet(), 0.1, 64)
    rows, columns = ways.factors(step, 2)
    matrices = shapes.alexnet().layers
    assert rows == sum(layer.rows for layer in matrices)
    biases = sum(layer.rows for layer in matrices) / 2
    assert columns == pytest.approx(sum(layer.gradients[0] / layer.rows for layer in matrices) + biases)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_cluster_file(tmp_path: Path) -> None:
    text = """
    nodes: 16
    ranks_per_node: 8
    inter: {bandwidth: 25Gbit, latency: 20us}
    intra: 300Gbit
    rack: 4
    uplink: 40Gbit
    memory: 900GB/s
    price: 12.5
    """
    found = machines.from_cluster(write(tmp_path / "c.yaml", text))
    assert (found.nodes, found.ranks_per_node, found.rack, found.price) == (16, 8, 4, 12.5)
    assert (found.inter.bandwidth, found.inter.latency) == pytest.approx((3.125e9, 20e-6))
    levels = found.model().levels
    assert [(level.parts, level.link.sharers) for level in levels] == [(8, 1), (4, 8), (4, 32)]
    assert levels[2].link.bandwidth == 5e9


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("- a", "no keys"),
        ("inter: 10", "unit"),
        ("nodes: -1", "nodes"),
        ("nodes: 2.5", "whole"),
        ("speed: 1", "unknown"),
        ("inter: {rate: 1}", "rate"),
        ("a: [", "no YAML"),
    ],
)
def test_a_wrong_cluster_file_gives_one_line(text: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=word) as error:
        machines.from_cluster(write(tmp_path / "c.yaml", text))
    assert "\n" not in str(error.value)


def test_racks_must_be_full() -> None:
    with pytest.raises(PlanError, match="multiple of 4"):
        machines.Machines(6, 1, rack=4).model()
    assert len(machines.Machines(3, 1, rack=4).model().levels) == 2


def tuning(path: Path) -> Path:
    """Two levels: 2 ranks a node, which get half of its link each, and 4 nodes."""
    link = tuning_file.Link
    found = tuning_file.Tuning(
        date="2026-01-02T03:04:05+00:00",
        roundelay="0.1.0",
        cluster=tuning_file.Cluster(
            4, 8, "mpi", (tuning_file.Level("node", 2), tuning_file.Level("cluster", 4))
        ),
        links=(
            link("node", 1e-6, 8e9, 1e-10, 2e-5, 0.05),
            link("cluster", 4e-5, 5e8, 1e-10, 3e-4, 0.1),
        ),
        measured=(),
        table=(),
    )
    tuning_file.save(found, path)
    return path


def test_a_tuning_file_gives_links_and_says_what_was_measured(tmp_path: Path) -> None:
    path = tuning(tmp_path / "tuning.json")
    found = machines.from_tuning(path, machines.Machines(ranks_per_node=2))
    assert (found.intra.bandwidth, found.inter.bandwidth) == (8e9, 1e9)
    assert (found.inter.latency, found.inter.overhead, found.error) == (4e-5, 3e-4, 0.1)
    (source,) = found.source
    assert source.startswith(f"{path}, links measured on 4 nodes of 2 ranks (2026-01-02 03:04 UTC, ")
    assert source.endswith(" days old)")
    assert dataclasses.replace(found, nodes=4).outside() == ""
    assert "measured were 4 of 2" in dataclasses.replace(found, nodes=8).outside()
    assert found.overhead() == 2e-5  # one node
    assert dataclasses.replace(found, nodes=2).overhead() == 3e-4
