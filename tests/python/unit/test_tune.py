"""`roundelay tune` without ranks: its groups, the fit, the choices and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from roundelay.tuning import file as tuning_file
from roundelay.tuning.cluster import choices, cli, fit, groups, job
from roundelay.tuning.cluster.groups import Series
from roundelay.tuning.cluster.lines import Plan
from roundelay.tuning.file import GPU, Choice, Level, Measurement

NODES = ("node", ((0, 1), (2, 3), (4, 5), (6, 7)))
RACKS = ("rack", ((0, 1, 2, 3), (4, 5, 6, 7)))


def test_the_groups_of_three_levels() -> None:
    assert groups.levels([NODES, RACKS]) == (Level("node", 2), Level("rack", 2), Level("cluster", 2))
    assert groups.inside([NODES, RACKS]) == Series("node", NODES[1])
    assert groups.between([NODES, RACKS]) == [
        Series("rack", ((0, 2), (1, 3), (4, 6), (5, 7))),
        Series("cluster", ((0, 4), (1, 5), (2, 6), (3, 7))),
        Series("cluster", (tuple(range(8)),)),
    ]


def test_the_groups_of_four_nodes() -> None:
    assert groups.levels([NODES]) == (Level("node", 2), Level("cluster", 4))
    assert groups.between([NODES]) == [
        Series("cluster", ((0, 2, 4, 6), (1, 3, 5, 7))),
        Series("cluster", ((0, 2), (1, 3))),
        Series("cluster", (tuple(range(8)),)),
    ]


def test_the_groups_of_uneven_nodes_and_of_nodes_of_one_rank() -> None:
    uneven = ("node", ((0, 1, 2), (3, 4), (5,)))
    assert groups.inside([uneven]) == Series("node", ((0, 1, 2), (3, 4)))
    whole = groups.between([uneven])[0]
    assert whole == Series("cluster", ((0, 3, 5), (1, 4)))
    assert whole.ranks == 3
    single = ("node", ((0,), (1,), (2,)))
    assert groups.inside([single]) is None
    assert groups.between([single]) == [Series("cluster", ((0, 1, 2),))]
    assert groups.levels([single]) == (Level("cluster", 3),)


def test_one_node_has_no_groups_between_nodes() -> None:
    assert groups.between([("node", ((0, 1, 2, 3),))]) == []
    assert groups.levels([("node", ((0, 1, 2, 3),))]) == (Level("node", 4),)


def test_the_groups_on_gpus_are_of_no_node() -> None:
    assert groups.on_gpus(6) == [Series(GPU, ((0, 1, 2, 3, 4, 5),)), Series(GPU, ((0, 1, 2),))]
    assert groups.on_gpus(4)[-1] == Series(GPU, ((0, 1),))
    assert groups.on_gpus(1) == []


def _measured(alpha: float, bandwidth: float, gamma: float, overhead: float) -> list[Measurement]:
    found = []
    for ranks in (2, 4):
        for algorithm in ("pairwise", "ring", "recursive_doubling", "halving_doubling"):
            for size in (256, 65536, 1 << 24):
                blank = Measurement("cluster", "allreduce", algorithm, ranks, size, 0, 0)
                work = fit.work(blank)
                assert work is not None
                steps, sent = work
                seconds = overhead + steps * alpha + sent / bandwidth
                found.append(
                    Measurement("cluster", "allreduce", algorithm, ranks, size, seconds, 1e-5 + gamma * sent)
                )
    return found


def test_the_fit_finds_the_constants_of_its_model() -> None:
    measured = _measured(alpha=2e-5, bandwidth=1.2e8, gamma=5e-10, overhead=1e-4)
    # A larger group is on inner levels, too, and a tree has no exact formula: neither changes the fit.
    measured.append(Measurement("cluster", "allreduce", "ring", 8, 4096, 9.0, 9.0))
    measured.append(Measurement("cluster", "allreduce", "binomial_tree", 4, 4096, 9.0, 9.0))
    link = fit.link(Level("cluster", 4), measured)
    assert link is not None
    assert link.alpha == pytest.approx(2e-5, rel=1e-6)
    assert link.bandwidth == pytest.approx(1.2e8, rel=1e-6)
    assert link.gamma == pytest.approx(5e-10, rel=1e-6)
    assert link.overhead == pytest.approx(1e-4, rel=1e-6)
    assert link.error < 1e-9


def test_a_node_of_four_beside_one_of_three_sends_by_three_ranks() -> None:
    uneven = ("node", ((0, 1, 2), (3, 4, 5, 6)))
    assert groups.senders([uneven]) == {"cluster": 3 / 4}
    assert groups.senders([NODES, RACKS]) == {"rack": 1.0, "cluster": 1.0}
    assert groups.senders([("node", ((0, 1),))]) == {"cluster": 1.0}
    # Three ranks that get 40 MB/s each fill a link of 120 MB/s, which four ranks share.
    measured = _measured(alpha=2e-5, bandwidth=4e7, gamma=5e-10, overhead=1e-4)
    link = fit.link(Level("cluster", 4), measured, senders=3 / 4)
    assert link is not None
    assert 4 * link.bandwidth == pytest.approx(1.2e8, rel=1e-6)
    assert fit.errors(link, 4, measured, senders=3 / 4)["allreduce"] == pytest.approx(0.0, abs=1e-6)


def test_a_constant_is_never_negative_and_one_size_is_no_fit() -> None:
    cells = [Measurement("node", "allreduce", "shm", 2, size, 1e-4, 1e-5) for size in (256, 4096)]
    link = fit.link(Level("node", 2), cells)
    assert link is not None
    assert link.alpha == pytest.approx(5e-5)  # two steps, and no constant beside them
    assert link.bandwidth > 0
    assert fit.link(Level("node", 2), cells[:1]) is None
    assert fit.link(Level("rack", 2), cells) is None


def test_the_constants_tell_how_long_other_operations_take() -> None:
    link = fit.link(Level("cluster", 4), _measured(alpha=2e-5, bandwidth=1.2e8, gamma=5e-10, overhead=1e-4))
    assert link is not None
    # A reducescatter of 1.2 MB among 4 ranks sends 0.9 MB: 100 us, a message of 20 us, 7.5 ms.
    right = Measurement("cluster", "reducescatter", "pairwise", 4, 1_200_000, 1e-4 + 2e-5 + 7.5e-3, 0)
    ring = Measurement("cluster", "allgather", "ring", 4, 1_200_000, 2 * (1e-4 + 3 * 2e-5 + 7.5e-3), 0)
    tree = Measurement("cluster", "broadcast", "binomial_tree", 4, 1_200_000, 1.0, 0)
    beyond = Measurement("cluster", "allgather", "ring", 8, 1_200_000, 9.0, 0)
    found = fit.errors(link, 4, [right, ring, tree, beyond])
    assert found == pytest.approx({"reducescatter": 0.0, "allgather": 0.5}, abs=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "ranks", "steps", "sent"),
    [
        ("ring", 3, 4, 4 / 3),
        ("pairwise", 3, 2, 4 / 3),
        ("direct", 3, 1, 2),
        ("recursive_doubling", 8, 3, 3),
        ("halving_doubling", 8, 6, 14 / 8),
        ("shm", 4, 2, 1.5),
    ],
)
def test_steps_and_bytes(algorithm: str, ranks: int, steps: int, sent: float) -> None:
    found = fit.work(Measurement("x", "allreduce", algorithm, ranks, 1200, 0, 0))
    assert found is not None
    assert found[0] == steps
    assert found[1] == pytest.approx(1200 * sent)


def test_algorithms_without_a_formula_have_no_work() -> None:
    assert fit.work(Measurement("x", "allreduce", "recursive_doubling", 6, 1200, 0, 0)) is None
    assert fit.work(Measurement("x", "broadcast", "binomial_tree", 8, 1200, 0, 0)) is None


def _times(**by_algorithm: list[float]) -> list[Measurement]:
    return [
        Measurement("cluster", "allreduce", algorithm, 4, 256 << (2 * i), seconds, 0)
        for algorithm, all_seconds in by_algorithm.items()
        for i, seconds in enumerate(all_seconds)
    ]


def test_the_fastest_is_chosen_and_changes_in_the_middle_of_two_sizes() -> None:
    table = choices.table(_times(recursive_doubling=[1, 2, 9], ring=[2, 3, 4], pairwise=[3, 3, 3]))
    assert table == (
        Choice("cluster", "allreduce", 4, 2048, "recursive_doubling"),
        Choice("cluster", "allreduce", 4, None, "pairwise"),
    )


def test_noise_changes_no_algorithm_and_a_size_that_was_left_out_is_not_chosen() -> None:
    assert choices.table(_times(ring=[1.0, 1.04, 1.0], pairwise=[1.1, 1.0, 1.0])) == (
        Choice("cluster", "allreduce", 4, None, "ring"),
    )
    assert choices.table(_times(direct=[1.0], ring=[2.0, 2.0])) == (
        Choice("cluster", "allreduce", 4, 512, "direct"),
        Choice("cluster", "allreduce", 4, None, "ring"),
    )
    assert choices.table([Measurement("node", "allreduce", "shm", 2, 256, 1, 0)]) == ()


def test_rounds_become_medians() -> None:
    cell = {"level": "x", "operation": "allreduce", "algorithm": "ring", "ranks": 2, "bytes": 4}
    rounds = [{**cell, "seconds": s, "cpu_seconds": 2 * s} for s in (5.0, 1.0, 2.0)]
    assert job.medians(rounds) == (Measurement("x", "allreduce", "ring", 2, 4, 2.0, 4.0),)


def test_a_plan_is_sent_as_one_word() -> None:
    plan = Plan((256, 1024), 3, 0.1, 1.0)
    assert Plan.from_word(plan.to_word()) == plan
    assert " " not in plan.to_word()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-np", "1"], "a single rank has nothing to tune: give -np N with 2 ranks or more"),
        (["-np", "2", "--rounds", "0"], "--rounds 0: give 1 or more"),
        (["-np", "2", "--output", "/nowhere/tuning.json"], "there is no folder '/nowhere'"),
        (["-np", "2", "--output", "/"], "it is a folder"),
        (["-H", "a:2,b:x"], "'b:x'"),
    ],
)
def test_wrong_use_is_one_line_before_anything_starts(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("roundelay tune: error: ")
    assert why in shown
    assert shown.count("\n") == 1


def test_what_was_found_is_a_file_that_can_be_read(tmp_path: Path) -> None:
    cluster = tuning_file.Cluster(2, 4, "mpi", (Level("node", 2), Level("cluster", 4)))
    tuning = cli.tuning_of(job.Found(cluster, tuple(_measured(1e-5, 1e8, 1e-9, 1e-4)), {}))
    tuning_file.save(tuning, tmp_path / "tuning.json")
    assert tuning_file.load(tmp_path / "tuning.json") == tuning
    assert tuning.link("cluster") is not None
