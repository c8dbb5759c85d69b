"""`roundelay plan` on nodes with different numbers of ranks, and its predictions of single collectives."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from roundelay import _model
from roundelay.plan import machines, operations, outlook, shapes, ways
from roundelay.plan.cli import main
from roundelay.plan.prediction import predict
from roundelay.plan.units import PlanError
from roundelay.plan.workload import from_shape

STEP = from_shape(shapes.resnet50(), 0.12, 64)
RESNET = ["--model", "resnet50", "--compute", "0.12s"]
MIB = 2.0**20
UNEVEN = [(1, 3), (2, 4), (3, 4)]


def on(*sizes: int, rack: int = 0) -> machines.Machines:
    return dataclasses.replace(machines.Machines(), rack=rack).on(sizes)


def test_nodes_are_a_number_or_the_ranks_of_each() -> None:
    assert machines.shape("3") == 3
    assert machines.shape("4+4+2") == (4, 4, 2)
    uneven = on(4, 4, 2)
    assert (uneven.nodes, uneven.ranks, uneven.model().ranks) == (3, 10, 10)
    assert [level.parts for level in uneven.model().levels] == [4, 3]
    assert uneven.on(2).ranks == 8  # equal nodes are as large as the largest one
    assert on(4, 4) == machines.Machines(2, 4)


@pytest.mark.parametrize("sizes", UNEVEN)
def test_each_strategy_sends_the_bytes_of_its_formula(sizes: tuple[int, int]) -> None:
    """Two nodes send S bytes each for a dense step, whatever their numbers of ranks."""
    cluster = on(*sizes).model()

    def sent(text: str) -> tuple[float, ...]:
        return predict(STEP, cluster, ways.parse(text, STEP)).bytes

    largest = max(sizes)
    in_node = (largest - 1) / min(sizes) * STEP.bytes  # a shard for each rank of the smaller node
    assert sent("dense") == pytest.approx((2 * (largest - 1) / largest * STEP.bytes, STEP.bytes))
    assert sent("bf16")[1] == pytest.approx(STEP.bytes / 2)
    assert sent("local_sgd:period=8")[1] == pytest.approx(STEP.bytes / 8)
    assert sent("daso")[1] == pytest.approx(STEP.bytes / 4)
    assert sent("topk:density=0.01") == pytest.approx((2 * in_node, 0.01 * STEP.bytes / 4 * 8))
    rows, columns = ways.factors(STEP, 2)
    factors = 4 * 2 * (rows + columns)
    in_factors = 2 * (largest - 1) / largest * factors
    assert sent("power_sgd:rank=2") == pytest.approx((in_node + in_factors, factors))


def test_racks_of_uneven_nodes() -> None:
    cluster = on(4, 2, 4, 2, rack=2).model()
    assert [(level.parts, level.link.sharers) for level in cluster.levels] == [(4, 1), (2, 4), (2, 6)]
    dense = _model.bytes_sent(_model.dense(cluster, MIB), cluster)
    assert dense == pytest.approx([2 * 3 / 4 * MIB, MIB, MIB])
    gathered = _model.bytes_sent(_model.moved_over_levels(cluster, "allgather", 12 * MIB), cluster)
    # A node of 4 brings the other one in its rack its own 4 parts, and 4 of 6 that have come from outside.
    assert gathered == pytest.approx([3 / 4 * 12 * MIB, (4 + 4) * MIB, 6 * MIB])


@pytest.mark.parametrize("sizes", [*UNEVEN, (1, 2, 4), (2, 2), (4, 4, 4)])
def test_a_node_sends_or_gets_what_its_ranks_have_and_a_broadcast_once(sizes: tuple[int, ...]) -> None:
    part = MIB
    whole, others = sum(sizes) * part, len(sizes) - 1

    def levels(operation: str) -> float:
        return operations.look(on(*sizes), operation, whole).levels.bytes[1]

    assert levels("allgather") == levels("reducescatter") == pytest.approx(max(sizes) * others * part)
    assert levels("broadcast") == levels("reduce") == pytest.approx(whole)
    assert levels("allreduce") == pytest.approx(2 * others / len(sizes) * whole)
    flat = operations.look(on(*sizes), "allgather", whole).flat.bytes[1]
    assert flat == pytest.approx(max(size * (sum(sizes) - size) for size in sizes) * part)


def test_collectives_are_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = tmp_path / "operations.json"
    words = ["--operations", "64KiB,25MiB", "--nodes", "1,2,1+3", "--ranks-per-node", "2", "--inter", "1Gbit"]
    assert main([*words, "--json", str(numbers)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "nodes operation size over levels bytes: in the node, node link flat bytes: outermost link" in out
    assert "1+3 reducescatter 26.2 MB" in out
    assert "note: links are stated, not measured" in out
    found = json.loads(numbers.read_text())["rows"]
    assert len(found) == 3 * 2 * len(operations.OPERATIONS)
    assert {(row["nodes"], row["ranks"]) for row in found} == {(1, 2), (2, 4), (2, 4)}
    large = {
        row["operation"]: row
        for row in found
        if row["nodes"] == 2 and row["ranks_of_nodes"] is None and row["size"] == 25 * MIB
    }
    wire = 25 * MIB / 125e6
    for operation, over_levels, flat in (
        ("allgather", 0.5, 1),
        ("reducescatter", 0.5, 1),
        ("allreduce", 1, 2),
    ):
        assert large[operation]["levels"]["seconds"] == pytest.approx(over_levels * wire, rel=0.05)
        assert large[operation]["flat"]["seconds"] == pytest.approx(flat * wire, rel=0.05)
    assert large["broadcast"]["levels"]["seconds"] == pytest.approx(wire, rel=0.05)


def test_more_pieces_hide_the_second_hop_of_a_broadcast() -> None:
    three = machines.Machines(3, 1, inter=machines.Wire(1e8, 0.0))
    one = operations.look(three, "broadcast", MIB).levels.seconds
    many = operations.look(three, "broadcast", 64 * MIB).levels.seconds
    assert one == pytest.approx(1.5 * MIB / 1e8)
    assert many == pytest.approx(64.5 * MIB / 1e8)


def test_a_plan_of_uneven_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture, numbers = tmp_path / "plan.png", tmp_path / "plan.json"
    words = [*RESNET, "--nodes", "2,4+4+2", "--ranks-per-node", "4", "--inter", "1Gbit"]
    assert main([*words, "--output", str(picture), "--json", str(numbers)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "On 3 nodes of 4+4+2 ranks take" in out
    found = json.loads(numbers.read_text())["rows"]
    assert [(row["nodes"], row["ranks"], row["ranks_of_nodes"]) for row in found[::4]] == [
        (2, 8, None),
        (3, 10, [4, 4, 2]),
    ]
    assert picture.exists()
    row = next(row for row in found if row["nodes"] == 3 and row["strategy"] == "dense")
    assert row["bytes"][1] == pytest.approx(2 * 2 / 3 * STEP.bytes)
    assert row["samples_per_second"] == pytest.approx(10 / row["seconds"])


def test_the_slowest_of_all_ranks_counts() -> None:
    uneven = outlook.look(STEP, on(1, 7), ways.parse("dense", STEP), 0.1)
    equal = outlook.look(STEP, on(4, 4), ways.parse("dense", STEP), 0.1)
    assert uneven.compute == equal.compute


def test_a_cluster_file_and_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("nodes: 4+4+2\ninter: 1Gbit\n")
    assert machines.from_cluster(path).sizes == (4, 4, 2)
    words = [*RESNET, "--cluster", str(path), "--strategies", "dense"]
    assert main([*words, "--what-if", "nodes=4+4+4"]) == 0
    out = capsys.readouterr().out
    assert "On 3 nodes of 4+4+2 ranks" in out
    assert "With nodes=4+4+4: On 3 nodes stay" in out
    path.write_text("ranks_per_node: 4\nnodes: 4+4+2\n")
    with pytest.raises(PlanError, match=r"c.yaml': ranks_per_node: .*4\+4\+2 has the ranks of each node"):
        machines.from_cluster(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*RESNET, "--nodes", "4+x"], "--nodes: '4+x' is not like 4+4+2, the ranks of each node: 'x' is no"),
        (
            [*RESNET, "--nodes", "4+0"],
            "--nodes: '4+0' is not like 4+4+2, the ranks of each node: '0' must be",
        ),
        ([*RESNET, "--nodes", "4+"], "--nodes: '4+' is not like 4+4+2, the ranks of each node: '' is no"),
        ([*RESNET, "--nodes", "4+2", "--ranks-per-node", "4"], "leave out --ranks-per-node"),
        ([*RESNET, "--nodes", "65536+1"], "2 nodes of 65536+1 ranks are more than 65536 ranks"),
        ([*RESNET, "--nodes", "4+2", "--what-if", "ranks_per_node=8"], "change nodes instead"),
        ([*RESNET, "--nodes", "4+2", "--study", "nodes"], "--study nodes needs nodes of equally many ranks"),
        (["--operations", "25"], "--operations: '25' has no unit of bytes: write it like 64KiB or 25MB"),
        (["--operations", "0MiB"], "--operations: '0MiB' must be more than 0"),
        (["--operations", "big"], "--operations: 'big' is no quantity"),
        (["--operations", "1MiB", "--model", "gpt2"], "predicts no training: leave out --model"),
        (["--operations", "1MiB", "--from", "job.json"], "leave out --from"),
        (["--operations", "1MiB", "--what-if", "inter=1Gbit"], "leave out --what-if"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    assert words in error


def test_a_cluster_that_contradicts_itself_is_a_value_error() -> None:
    levels = [_model.Level(3, _model.Link(0.0, 1.0)), _model.Level(2, _model.Link(0.0, 1.0))]
    for nodes in ([3], [3, 2, 1], [2, 2], [3, 0], [4, 3]):
        with pytest.raises(ValueError, match="node"):
            _model.Cluster(levels, nodes=nodes)
    uneven = _model.Cluster(levels, nodes=[3, 1])
    program = _model.dense(uneven, 4.0)
    with pytest.raises(ValueError, match="take no jitter"):
        _model.simulate(uneven, 1.0, 1.0, 0.0, [(0.0, program)], jitter=0.1)
    broadcast = _model.moved_over_levels(uneven, "broadcast", 4.0)
    with pytest.raises(ValueError, match="not simulated"):
        _model.simulate(uneven, 1.0, 1.0, 0.0, [(0.0, broadcast)])
    with pytest.raises(ValueError, match="unknown operation: alltoall"):
        _model.moved_over_levels(uneven, "alltoall", 4.0)
    with pytest.raises(ValueError, match="root"):
        _model.moved_flat(uneven, "broadcast", 4.0, 4)
