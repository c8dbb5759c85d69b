"""The pages of docs hold what the stored results say, and pictures are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import collectives, convergence, correction, crossover, eight_bits, levels, pointers, top_k
from benchmarks.averaging import training
from benchmarks.report import (
    averaging,
    curves,
    gpu,
    gradientflow,
    papers,
    protocol,
    table,
    time_to_loss,
    wires,
)
from benchmarks.report.page import DOCS, END, Part, read, with_text

TEXTS: list[tuple[Part, Callable[[], str]]] = [
    (table.SHORT, lambda: table.short_table(table.read())),
    (table.PEERS, lambda: table.peers_table(table.read())),
    (table.GOALS, lambda: table.goals_table(table.read())),
    (papers.PART, papers.tables),
    (averaging.PART, lambda: averaging.text(read(averaging.STORED))),
    (correction.PART, lambda: correction.table(read(correction.STORED))),
    (crossover.PART, lambda: crossover.page_text(read(crossover.STORED))),
    (eight_bits.PART, lambda: eight_bits.page_text(read(eight_bits.STORED))),
    (protocol.PART, lambda: protocol.text(read(protocol.STORED))),
    (time_to_loss.PART, lambda: time_to_loss.text(read(time_to_loss.STORED))),
    (collectives.PART, lambda: collectives.document(read(collectives.STORED))),
    (gradientflow.PART, lambda: gradientflow.text(read(gradientflow.STORED))),
    (gradientflow.TWINS, lambda: gradientflow.twins_text(read(gradientflow.STORED))),
    (gpu.PART, lambda: gpu.markdown(read(gpu.STORED))),
    (levels.PART, lambda: levels.document(read(levels.STORED))),
    (pointers.PART, lambda: pointers.page_text(read(pointers.PART.page.with_suffix(".json")))),
    (wires.PART, lambda: wires.text(read(wires.STORED))),
    (top_k.PART, lambda: top_k.page_text(read(top_k.PART.page.with_suffix(".json")))),
]


def _holds(part: Part, text: str) -> bool:
    return part.filled(text) == part.page.read_text()


def _name(part: Part) -> str:
    return f"{part.page.relative_to(DOCS)}-{part.command.removeprefix('python -m benchmarks.')}"


@pytest.mark.parametrize(("part", "text"), TEXTS, ids=[_name(part) for part, _ in TEXTS])
def test_a_page_holds_what_is_stored(part: Part, text: Callable[[], str]) -> None:
    assert _holds(part, text())


@pytest.mark.parametrize("subject", curves.CONVERGENCE, ids=lambda subject: subject.kind)
def test_a_page_holds_the_stored_trainings(subject: curves.Subject) -> None:
    part = curves.convergence_part(subject, read(convergence.STORED))
    assert _holds(subject.part, curves.convergence_text(subject, part))
    assert subject.picture.exists() == bool(part["jobs"])


@pytest.mark.parametrize("subject", curves.AVERAGING, ids=lambda subject: subject.kind)
def test_a_page_holds_the_stored_trainings_that_average(subject: curves.Subject) -> None:
    part = curves.averaging_part(subject, read(training.STORED))
    assert _holds(subject.part, curves.averaging_text(part["jobs"]))
    assert subject.picture.exists()


def test_the_picture_of_the_stored_steps_is_there() -> None:
    assert gradientflow.PICTURE.exists()


def test_only_what_is_between_the_marks_is_replaced() -> None:
    begin = Part(Path("page.md"), "command").begin
    page = f"before\n{begin}\nold\n{END}\nbetween\n{END}\n"
    assert with_text(page, "new\n", begin) == f"before\n{begin}\nnew\n{END}\nbetween\n{END}\n"


@pytest.mark.parametrize("page", ["no marks", f"{END}\nbegin", "begin", f"begin begin {END}"])
def test_a_page_without_its_marks_is_left_alone(page: str) -> None:
    with pytest.raises(ValueError, match="the page needs one 'begin'"):
        with_text(page, "text", "begin")
