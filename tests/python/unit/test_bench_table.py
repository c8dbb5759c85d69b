"""The speed table's arithmetic, of numbers that are known, and its places: Markdown, pages, plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import picture
from benchmarks.report import table as report
from benchmarks.table import (
    allreduce,
    alone,
    cache,
    goals,
    lars,
    nodes,
    small,
    start,
    straggler,
    submit,
    tensors,
    threads,
    train,
)
from benchmarks.table.line import Goal, Line
from benchmarks.table.result import Estimate, Peer, Result, from_json

MIB = 1 << 20
MACHINE = {"cores": 2, "cpu": "x86", "torch": "2", "mpi": "Open MPI 5", "python": "3.11"}


def times(**values: float) -> dict[str, list[float]]:
    return {name: [value] for name, value in values.items()}


def costs(result: Result) -> tuple[str, float | None, float | None, dict[str, float | None]]:
    """Work, own cost, that by the floor's, and peers' by own; rounded."""

    def rounded(estimate: Estimate | None) -> float | None:
        return None if estimate is None else round(estimate.value, 9)

    peers = {peer.name: rounded(peer.ratio) for peer in result.peers}
    return result.work, rounded(result.own), rounded(result.over_floor), peers


def result(own: float, floor: float | None = None, **peers: float) -> Result:
    beside = tuple(Peer(name, Estimate(cost), Estimate(cost / own)) for name, cost in peers.items())
    least = None if floor is None else Estimate(floor)
    over = None if floor is None else Estimate(own / floor)
    return Result("work", "s", Estimate(own), beside, least, "bare" if floor else "", over)


@pytest.mark.parametrize(
    ("goal", "low", "high", "verdict"),
    [
        (Goal(4.0), 3.0, 3.5, "yes"),
        (Goal(6.0), 4.0, 6.5, "within noise"),
        (Goal(6.0), 4.0, 5.5, "no"),
        (Goal(6.0), None, None, "no"),
        (Goal(4.0, at_least=False), 3.5, 9.0, "within noise"),
        (Goal(4.0, at_least=False), 4.5, 9.0, "no"),
    ],
)
def test_a_miss_that_the_noise_explains_is_called_so(
    goal: Goal, low: float | None, high: float | None, verdict: str
) -> None:
    assert Line("work", "1 s", value=5.0, goal=goal, low=low, high=high).verdict == verdict


def test_allreduce_results() -> None:
    fp32 = times(roundelay=2e-3, pool=1e-3, gloo=20e-3, mpi=4e-3, bare=0.5e-3)
    half = times(roundelay=4e-3, pool=1, gloo=60e-3, bare=0.5e-3)
    cells = [
        {"dtype": "float32", "bytes": MIB, "seconds": fp32, "others": [0.0]},
        {"dtype": "float32", "bytes": 25 * MIB, "seconds": fp32, "others": [0.0]},
        {"dtype": "float16", "bytes": MIB, "seconds": half, "others": [0.0]},
        {"dtype": "float16", "bytes": 25 * MIB, "seconds": half, "others": [0.0]},
    ]
    assert [costs(one) for one in allreduce.results([{"ranks": 2, "cells": cells}])] == [
        ("25 MiB fp32, 2 ranks", 2e-3, 4, {"Gloo": 10, "MPI": 2}),
        ("25 MiB fp32, in the pool, 2 ranks", 1e-3, 2, {"Gloo": 20, "MPI": 4}),
        ("25 MiB fp16, 2 ranks", 4e-3, 8, {"Gloo": 15, "own fp32": 0.5}),
        ("1 MiB fp32, 2 ranks", 2e-3, 4, {"Gloo": 10, "MPI": 2}),
    ]


def test_small_calls_have_a_median_of_medians_and_a_tail_of_the_repetitions_that_count() -> None:
    calls = {
        "roundelay": [[1e-6, 9e-6, 20e-6], [9e-6] * 3, [1.0] * 3],
        "gloo": [[270e-6] * 3] * 3,
        "bare": [[3e-6]] * 3,
    }
    cell = {"bytes": 256, "in a row": {"calls": calls, "others": [0.0, 0.0, 0.9]}}
    cell["after other work"] = {"calls": calls, "others": [0.9, 0.9, 0.9]}
    row, after = small.results({"cells": [cell]})
    assert costs(row) == ("256 B blocking, in a row, 2 ranks", 9e-6, 3, {"Gloo": 30})
    assert row.tail is not None
    assert (row.tail.value, row.kept, row.of) == (20e-6, 2, 3)
    assert (after.own, after.why) == (None, "other processes ran in 3 of 3 repetitions")


def test_results_of_many_tensors() -> None:
    took = {
        "roundelay": [10e-3],
        "gloo": [100e-3],
        "gloo in buckets": [30e-3],
        "mpi": [15e-3],
        "bare": [5e-3],
    }
    job = {"ranks": 4, "tensors": 161, "bytes": 97 * MIB, "seconds": took, "others": [0.0]}
    peers = {"Gloo, asynchronous": 10, "Gloo, in 25 MiB buckets": 3, "MPI, in turn": 1.5}
    assert [costs(one) for one in tensors.results([job])] == [
        ("161 tensors, 97 MiB, 4 ranks", 10e-3, 2, peers)
    ]


def test_exposed_is_of_medians_and_against_the_best_ddp() -> None:
    took = {"none": [0.5], "roundelay": [0.51], "ddp": [0.59], "ddp 100 MiB": [0.56], "bare": [5e-3]}
    cpu = {"none": [0.4], "roundelay": [0.42], "ddp": [0.44], "ddp 100 MiB": [0.5]}
    cell = {"model": "resnet50", "seconds": took, "cpu": cpu, "others": [0.0]}
    exposed, added = train.results([cell])
    assert costs(exposed) == ("exposed in a step, ResNet-50, 2 ranks", 10e-3, 2, {"DDP": 6})
    assert exposed.note == "step of 500 ms, DDP with buckets of 100 MiB"
    assert costs(added) == ("CPU time added to a rank's step, ResNet-50, 2 ranks", 20e-3, 4, {"DDP": 2})
    assert added.note == "DDP with buckets of 25 MiB"
    # What is hidden so well that steps do not differ is taken as a millisecond.
    hidden, _ = train.results([{**cell, "seconds": {**took, "roundelay": [0.49]}}])
    assert costs(hidden)[3] == {"DDP": 60}
    absent = train.results([{"model": "gpt2", "missing": "pip install transformers"}])
    assert [one.why for one in absent] == ["pip install transformers"] * 2
    disturbed, _ = train.results([{**cell, "others": [0.5]}])
    assert disturbed.why == "other processes ran in 1 of 1 repetitions"


def test_a_half_type_over_a_wire_is_compared_with_fp32() -> None:
    took = {"none": [0.5], "roundelay": [0.9], "roundelay bf16": [0.7], "ddp": [1.1], "ddp fp16": [0.8]}
    under_way = {"roundelay": [0.8], "roundelay bf16": [0.4]}
    cell = {"model": "resnet50", "mbit": 1000, "seconds": took, "under_way": under_way, "others": [0.0]}
    exposed, communication = train.results([cell])
    assert costs(exposed)[1:] == (0.2, None, {"fp32": 2, "DDP": 3, "DDP in fp16": 1.5})
    assert costs(communication)[1:] == (0.4, None, {"fp32": 2})
    absent = train.results([{"model": "resnet50", "mbit": 1000, "missing": "needs root"}])
    assert [one.why for one in absent] == ["needs root"] * 2


def test_costs_take_off_what_is_there_anyway() -> None:
    took = times(call=4e-6, queue=1e-7, plain=3e-6)
    took |= {"hooked": [5e-6], "hooked bf16": [5.5e-6], "empty hooks": [4e-6]}
    assert [costs(one)[1:] for one in submit.results({"seconds": took, "others": [0.0]})] == [
        (4e-6, 40, {}),
        (2e-6, 2, {}),
        (2.5e-6, 2.5, {submit.OWN_FP32: 0.8}),
    ]
    cpu = times(roundelay=0.9e-3, gloo=0.3e-3, mpi=50e-3, sleep=0.1e-3)
    (wait,) = straggler.results({"cpu": cpu, "others": [0.0]})
    assert costs(wait)[1:] == (0.8e-3, None, {"Gloo": 0.25, "MPI": 62.375})
    took = {"1": [10e-6], str(threads.THREADS): [40e-6], "switch": [16e-6]}
    (sums,) = threads.results({"seconds": took, "others": [0.0]})
    assert costs(sums)[1:] == (40e-6, 2.5, {threads.ONE: 0.25})
    began = {"python": [0.1], "torch": [4.0], "run": [0.4], "sum": [4.5]}
    assert [costs(one)[1:3] for one in start.results({"seconds": began, "others": [0.0]})] == [
        (0.4, 4),
        (4.5, 1.125),
    ]


def test_results_of_trust_ratios() -> None:
    took = {"per layer": [8e-3], "multi-tensor": [6e-3], "shared": [4e-3]}
    cell = {"model": "gpt2", "layers": 148, "seconds": took, "others": [0.0]}
    (ratios,) = lars.results([{"ranks": 4, "cells": [cell]}])
    peers = {lars.LAYERWISE: 2, lars.MULTI_TENSOR: 1.5}
    assert costs(ratios) == ("LARS: trust ratios of GPT-2 small, 4 ranks", 4e-3, None, peers)


def test_results_of_a_data_cache() -> None:
    took = {
        "first, with a cache": [3.3],
        "first, without a cache": [3.0],
        "later, with a cache": [0.5],
        "later, from memory": [0.4],
        "later, with a cache, no transform": [0.2],
        "later, from memory, no transform": [0.2],
    }
    found = {"seconds": took, "others": [0.0], "samples": 1024, "side": 224, "workers": 2}
    made = cache.results({**found, "memory": {"share": 330, "kept": 300}})
    assert [costs(one)[:3] for one in made] == [
        (cache.FIRST, 3.3, 1.1),
        (cache.LATER, 0.5, 1.25),
        (cache.PLAIN, 0.2, 1),
        (cache.MEMORY, 330, 1.1),
    ]
    assert made[0].note == "1024 images of 147 KiB, 2 ranks of 2 workers"
    met = [line.met for line, _ in goals.compared({one.work: one for one in made})]
    assert met == [True, False, True, False]


def test_of_a_library_alone_the_worst_rank_counts() -> None:
    def rank(share: float, messages: int | None, memory: int) -> dict[str, Any]:
        idle = {"share": share, "wake_ups": 0, "messages": messages}
        return {"idle": idle, "memory": memory * MIB, "gradients": 100 * MIB}

    found = {
        "none": [rank(0, None, 100)],
        "roundelay": [rank(0.0005, 0, 160), rank(0.002, 1, 110)],
        "gloo": [rank(0.0015, None, 140)],
    }
    cpu, messages, memory = alone.results(found)
    assert costs(cpu)[1:] == (0.2, None, {"DDP with Gloo": 0.75})
    assert costs(messages)[1] == 1
    assert costs(memory)[1:] == (160 * MIB, 1.6, {"DDP with Gloo": 0.875})


def test_results_of_two_nodes() -> None:
    cell = {"bytes": 25 * MIB, "sent": {"roundelay": 102, "stream": 100}, "others": [0.0]}
    cell["seconds"] = times(roundelay=0.22, stream=0.2)
    assert [costs(one)[1:3] for one in nodes.results({"cells": [cell]})] == [(102, 1.02), (0.22, 1.1)]
    (absent,) = nodes.results({"missing": "no namespaces here"})
    assert absent.why == "no namespaces here"


def test_no_goal_lies_below_the_floor() -> None:
    reached = result(4.0, floor=2.0, Gloo=30.0)
    line, raised = goals.times_as_fast("work", "Gloo", 10.0).line(reached)
    assert (line.value, line.goal, raised) == (7.5, Goal(10.0), False)
    line, raised = goals.times_as_fast("work", "Gloo", 20.0).line(reached)  # that would be 1.5
    assert (line.value, line.goal, raised) == (7.5, Goal(15.0), True)
    line, raised = goals.at_most("work", 1.0).line(reached)
    assert (line.value, line.goal, raised) == (4.0, Goal(2.0, at_least=False), True)
    line, raised = goals.behind("work", "MPI", 0.5).line(result(4.0, floor=2.0, MPI=1.0))
    assert (line.value, line.goal, raised) == (3.0, Goal(1.0, at_least=False), True)
    line, raised = goals.behind("work", "MPI", 0.5).line(result(4.0, floor=1.0, MPI=1.0))
    assert (line.value, line.goal, raised) == (3.0, Goal(0.5, at_least=False), False)
    line, raised = goals.at_most("work", 1.0).line(result(1.5, floor=2.0))  # that is no floor
    assert (line.value, line.goal, raised) == (1.5, Goal(1.0, at_least=False), False)


def test_a_floor_raises_goals_no_further_than_it_is_known() -> None:
    noisy = Result("work", own=Estimate(4.0), floor=Estimate(5.0, 2.0, 9.0))
    line, raised = goals.at_most("work", 1.0).line(noisy)
    assert (line.goal, line.met, raised) == (Goal(2.0, at_least=False), False, True)


def test_goals_of_the_floor_itself_and_of_the_tail() -> None:
    line, _ = goals.times_the_floor("work", 1.2).line(result(4.0, floor=2.0))
    assert (line.value, line.met) == (2.0, False)
    line, _ = goals.above_the_floor("work", 3.0).line(result(4.0, floor=2.0))
    assert (line.value, line.met) == (2.0, True)
    line, _ = goals.tail_at_most("work", 10.0).line(
        Result("work", own=Estimate(2.0), tail=Estimate(30.0, 16.0))
    )
    assert (line.value, line.low, line.high, line.verdict) == (15.0, 8.0, None, "within noise")
    assert goals.times_the_floor("work", 1.2).line(result(4.0))[0].own == "not measured: no floor"
    assert goals.times_as_fast("work", "MPI", 2.0).line(result(4.0))[0].own == "not measured: no MPI"


def test_every_goal_finds_what_is_stored() -> None:
    stored = report.results(report.read())
    assert {aim.work for aim in goals.AIMS} <= {one.work for one in stored}
    assert len({one.work for one in stored}) == len(stored)


def test_results_survive_json() -> None:
    whole = Result(
        "work", "B", Estimate(1.0, 0.5, 2.0), (Peer("Gloo", Estimate(3.0)),), Estimate(0.5), "bare",
        Estimate(2.0), Estimate(4.0), "note", 3, 4, headline="head",
    )  # fmt: skip
    for one in (whole, Result("work", why="no compiler"), result(1.0, 0.5, MPI=2.0)):
        assert from_json(one.as_json()) == one


def rows(*results_: Result) -> dict[str, Any]:
    return {
        "small": {"day": "2026-01-01", "machine": MACHINE, "results": [one.as_json() for one in results_]}
    }


def test_the_plot_draws_the_headlines(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture.draw(report.paint, report.read(), tmp_path / "table.png")
    picture.draw(report.paint, rows(Result("x", why="y", headline="x")), tmp_path / "none.png")
    for name in ("table.png", "none.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
