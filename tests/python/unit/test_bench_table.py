"""The speed table's arithmetic, of numbers that are known, and its places: terminal, Markdown, page, plot."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import measure, shapes
from benchmarks.table import allreduce, alone, document, nodes, small, straggler, submit, tensors, train
from benchmarks.table.line import Goal, Line, faster, missing
from benchmarks.workers.tensors import cut

MIB = 1 << 20


def seconds(**medians: float) -> dict[str, Any]:
    return {name: {**measure.summary([value]), "p99": 3 * value} for name, value in medians.items()}


def verdicts(lines: list[Line]) -> list[tuple[str, str, float | None, bool | None]]:
    rounded = [None if line.value is None else round(line.value, 9) for line in lines]
    return [(line.work, line.peer, value, line.met) for line, value in zip(lines, rounded, strict=True)]


def test_goals() -> None:
    most, least = Goal(3.0, at_least=False), Goal(10.0)
    assert [most.met(value) for value in (2.9, 3.0, 3.1)] == [True, True, False]
    assert [least.met(value) for value in (9.9, 10.0)] == [False, True]
    assert (least.score(5.0), most.score(6.0)) == (0.5, 0.5)
    assert Goal(0, at_least=False).score(0) == math.inf
    assert Goal(0, at_least=False).score(2) == 0
    assert most.score(-1.0) == math.inf


def test_a_line_says_what_was_measured_and_what_it_shall_be() -> None:
    line = faster("work", 2e-3, "Gloo", 10e-3, 6.0)
    assert line.cells() == ["work", "2 ms", "Gloo 10 ms", "5x", ">= 6x", "no"]
    assert missing("work", "no compiler").cells() == ["work", "not measured: no compiler", "", "", "", ""]
    idle = Line("idle", "0.02 %", theirs="MPI 0 %", value=0.02, unit="%", goal=Goal(0.1, at_least=False))
    assert idle.cells() == ["idle", "0.02 %", "MPI 0 %", "0.02 %", "<= 0.1 %", "yes"]


def test_allreduce_lines() -> None:
    fp32 = seconds(roundelay=2e-3, pool=1e-3, gloo=20e-3, mpi=4e-3, bare=0.5e-3)
    cells = [
        {"dtype": "float32", "bytes": MIB, "seconds": fp32},
        {"dtype": "float32", "bytes": 25 * MIB, "seconds": fp32},
        {"dtype": "float16", "bytes": MIB, "seconds": seconds(roundelay=1, pool=1, gloo=1)},
        {"dtype": "float16", "bytes": 25 * MIB, "seconds": seconds(roundelay=4e-3, pool=1, gloo=60e-3)},
    ]
    assert verdicts(allreduce.lines([{"ranks": 2, "cells": cells}])) == [
        ("25 MiB fp32, 2 ranks", "Gloo", 10, True),
        ("25 MiB fp32, 2 ranks", "MPI", 2, False),
        ("25 MiB fp32, in the pool, 2 ranks", "MPI", 4, True),
        ("25 MiB fp32, in the pool, 2 ranks", "bare memory work", 2, False),
        ("25 MiB fp16, 2 ranks", "Gloo", 15, True),
        ("25 MiB fp16, 2 ranks", "own fp32", 0.5, False),
        ("1 MiB fp32, 2 ranks", "Gloo", 10, False),
        ("1 MiB fp32, 2 ranks", "MPI", 2, False),
    ]


def test_lines_of_small_calls_have_median_and_tail() -> None:
    cell = {"bytes": 256, "in a row": seconds(roundelay=9e-6, gloo=270e-6, mpi=2e-6)}
    cell["after other work"] = seconds(roundelay=20e-6, gloo=270e-6)
    row, after = "256 B blocking, in a row, 2 ranks", "256 B blocking, after other work, 2 ranks"
    assert verdicts(small.lines({"cells": [cell]})) == [
        (row, "Gloo", 30, True),
        (row, "", 9e-6, True),
        (row, "behind MPI", 7e-6, True),
        (f"{row}, p99", "own median", 3, True),
        (after, "Gloo", 13.5, False),
        (f"{after}, p99", "own median", 3, True),
    ]


def test_lines_of_many_tensors() -> None:
    times = {"roundelay": 10e-3, "gloo": 100e-3, "gloo in buckets": 30e-3, "mpi": 15e-3}
    job = {"ranks": 4, "tensors": 161, "bytes": 97 * MIB, "seconds": seconds(**times)}
    work = "161 tensors, 97 MiB, 4 ranks"
    assert verdicts(tensors.lines([job])) == [
        (work, "Gloo, asynchronous", 10, False),
        (work, "Gloo, in 25 MiB buckets", 3, False),
        (work, "MPI, in turn", 1.5, None),
    ]


def test_exposed_is_of_medians_and_against_the_best_ddp() -> None:
    times = {"none": 0.5, "roundelay": 0.51, "ddp": 0.59, "ddp 100 MiB": 0.56}
    exposed = seconds(roundelay=0.012, ddp=0.1, **{"ddp 100 MiB": 0.07})
    cell = {"model": "resnet50", "seconds": seconds(**times), "exposed": exposed}
    (line,) = train.lines([cell])
    assert verdicts([line]) == [("exposed, ResNet-50, step of 500 ms, 2 ranks", "DDP 100 MiB", 6, True)]
    assert (line.own, line.theirs) == ("10 ms (12 ms to 12 ms)", "60 ms (70 ms to 70 ms)")
    # What is hidden so well that steps do not differ is taken as a millisecond.
    (line,) = train.lines([{**cell, "seconds": seconds(**{**times, "roundelay": 0.49})}])
    assert round(line.value or 0) == 60
    (line,) = train.lines([{"model": "gpt2", "missing": "pip install transformers"}])
    assert (line.value, line.own) == (None, "not measured: pip install transformers")


def test_lines_of_costs_take_off_what_is_there_anyway() -> None:
    found = {"seconds": seconds(call=4e-6, hooked=5e-6, plain=3e-6)}
    assert [line[2:] for line in verdicts(submit.lines(found))] == [(4e-6, False), (2e-6, True)]
    cpu = seconds(roundelay=0.9e-3, gloo=0.3e-3, mpi=50e-3, sleep=0.1e-3)
    (line,) = straggler.lines({"cpu": cpu})
    assert (round(line.value or 0, 9), line.met) == (0.8e-3, True)
    assert line.theirs == "Gloo 200 us, MPI 49.9 ms"


def test_of_a_library_alone_the_worst_rank_counts() -> None:
    def rank(share: float, messages: int | None, memory: int) -> dict[str, Any]:
        idle = {"share": share, "wake_ups": 0, "messages": messages}
        return {"idle": idle, "memory": memory * MIB, "gradients": 100 * MIB}

    found = {
        "none": [rank(0, None, 100)],
        "roundelay": [rank(0.0005, 0, 174), rank(0.002, 1, 110)],
        "gloo": [rank(0.0015, None, 140)],
    }
    cpu, messages, memory = alone.lines(found)
    assert (round(cpu.value or 0, 9), cpu.met, cpu.theirs) == (0.2, False, "DDP with Gloo 0.15 %")
    assert (messages.value, messages.met) == (1, False)
    assert (memory.value, memory.met) == (174 * MIB, True)  # 1.1 x 100 + 64
    assert memory.theirs == "no communication 100 MiB, DDP with Gloo 140 MiB"


def test_lines_of_two_nodes() -> None:
    cell = {
        "bytes": 25 * MIB,
        "sent": {"roundelay": 102, "stream": 100},
        "seconds": seconds(roundelay=0.22, stream=0.2),
    }
    assert [line[2:] for line in verdicts(nodes.lines({"cells": [cell]}))] == [(1.02, True), (1.1, False)]
    (line,) = nodes.lines({"missing": "no namespaces here"})
    assert line.own == "not measured: no namespaces here"


def test_the_page_holds_the_table_between_its_marks() -> None:
    machine = {"cores": 2, "cpu": "x86", "torch": "2", "mpi": "Open MPI 5", "python": "3.11"}
    table = document.markdown([faster("work", 1.0, "Gloo", 2.0, 3.0)], machine, "2026-01-01")
    assert table.splitlines()[2:] == [
        "| work | Roundelay | against | measured | goal | met |",
        "|---|---|---|---|---|---|",
        "| work | 1 s | Gloo 2 s | 2x | >= 3x | no |",
    ]
    page = document.with_table(f"before\n{document.BEGIN}\nold\n{document.END}\nafter\n", table)
    assert page == f"before\n{document.BEGIN}\n{table}{document.END}\nafter\n"
    assert document.with_table(page, table) == page
    with pytest.raises(ValueError, match="the page needs"):
        document.with_table("no marks", table)
    document.with_table(document.PAGE.read_text(), table)  # the real one has them


def test_the_plot_draws_every_goal(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.table.plot import plot

    lines = [
        faster("met", 1.0, "Gloo", 4.0, 2.0),
        faster("missed", 1.0, "Gloo", 1e-3, 2.0),
        missing("x", "y"),
    ]
    none = Line("messages", "0", value=0, unit="", goal=Goal(0, at_least=False))
    plot([*lines, none], tmp_path / "table.png")
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")


def test_resnet50_has_its_shapes() -> None:
    made = shapes.resnet50()
    assert len(made) == 161
    assert sum(math.prod(shape) for shape in made) == 25_557_032
    assert made[0] == (64, 3, 7, 7)
    assert made[-2:] == [(1000, 2048), (1000,)]


def test_buckets_are_cut_in_order() -> None:
    import torch

    made = [torch.zeros(count) for count in (100, 200, 300, 50)]
    buckets = cut(made, 1200)
    assert [[tensor.numel() for tensor in bucket] for bucket in buckets] == [[100, 200], [300], [50]]
