"""What the analysis says of traces whose numbers are known."""

from typing import Any

import pytest

from roundelay.timeline import analysis
from roundelay.timeline.analysis import (
    BETWEEN,
    COLLECTIVE,
    COPY,
    ENQUEUE,
    GPU,
    INSIDE,
    NEGOTIATION,
    SECOND_COLLECTIVE,
    TRAINING,
    Levels,
    Straggler,
    TechniqueUse,
)
from roundelay.timeline.events import Event, Trace
from roundelay.timeline.report import levels_line


def span(rank: int, row: int, name: str, begin: float, end: float, **args: Any) -> Event:
    return Event("X", name, rank, row, begin, end - begin, args)


def tensor(rank: int, begin: float, end: float) -> list[Event]:
    """A tensor of this name is under way, as the file has it: points of an async pair."""
    phases = (("b", "w", begin), ("n", "submit", begin), ("n", "complete", end), ("e", "w", end))
    return [Event(phase, name, rank, 0, at, 0.0, {}, f"{rank}:{begin}") for phase, name, at in phases]


def allreduce(rank: int, begin: float, end: float, tensors: int, size: int) -> Event:
    return span(rank, COLLECTIVE, "allreduce", begin, end, tensors=tensors, bytes=size)


def ready(last: int, waited: float) -> Event:
    return Event(
        "i", "ready", 0, NEGOTIATION, 0.0, 0.0, {"tensor": "w", "last_rank": last, "waited_us": waited}
    )


@pytest.fixture
def trace() -> Trace:
    """Two steps of rank 0, one of rank 1."""
    return Trace(
        [
            span(0, TRAINING, "backward", 100, 200),
            allreduce(0, 150, 190, tensors=3, size=1000),
            span(0, COPY, "pack", 180, 195),
            *tensor(0, 140, 235),
            *tensor(0, 145, 196),
            allreduce(0, 195, 230, tensors=1, size=200),
            span(0, TRAINING, "synchronize", 205, 240),
            span(0, TRAINING, "step", 240, 250),
            span(0, TRAINING, "backward", 300, 400),
            allreduce(0, 410, 450, tensors=4, size=1200),
            *tensor(0, 380, 450),
            span(0, TRAINING, "synchronize", 400, 460),
            span(0, TRAINING, "step", 400, 470),
            span(1, TRAINING, "backward", 110, 240),
            allreduce(1, 150, 190, tensors=3, size=1000),
            allreduce(1, 195, 230, tensors=1, size=200),
            span(1, TRAINING, "step", 240, 250),
        ]
    )


def test_steps(trace: Trace) -> None:
    first, second, other = analysis.steps(trace)
    assert (first.rank, first.index, first.begin, first.end) == (0, 0, 100, 250)
    assert (first.backward, first.under_way, first.exposed) == (100, 95, 30)
    assert (first.computing, second.computing) == (115, 160)  # they waited 35 and 60
    assert (first.tensors, first.operations, first.bytes) == (4, 2, 1200)
    assert (second.rank, second.index, second.begin, second.end, second.duration) == (0, 1, 250, 470, 220)
    assert (second.backward, second.under_way, second.exposed) == (100, 70, 50)
    assert (other.rank, other.backward, other.under_way, other.exposed) == (1, 130, 75, 0)
    assert analysis.mean([first, second], "exposed") == 40
    assert analysis.hidden_share([first, second]) == pytest.approx(1 - 80 / 165)


def test_startup_belongs_to_no_step(trace: Trace) -> None:
    trace.events.extend([span(0, TRAINING, "synchronize", 0, 50), *tensor(0, 0, 50)])
    assert analysis.steps(trace)[0].begin == 100


def test_waiting_for_nothing_and_computing_beside_nothing_are_not_communication() -> None:
    events = [span(0, TRAINING, "synchronize", 10, 30), *tensor(0, 5, 15), *tensor(0, 40, 50)]
    (step,) = analysis.steps(Trace([*events, span(0, TRAINING, "step", 0, 60)]))
    assert (step.under_way, step.exposed) == (20, 5)


def test_waiting_at_the_end_of_backward_hides_nothing() -> None:
    trace = Trace(
        [
            span(0, TRAINING, "backward", 0, 100),
            span(0, TRAINING, "synchronize", 80, 100),
            *tensor(0, 70, 100),
            span(0, TRAINING, "step", 100, 110),
        ]
    )
    (step,) = analysis.steps(trace)
    assert (step.backward, step.exposed) == (80, 20)


def test_several_backwards_are_one_step() -> None:
    events = [span(0, TRAINING, "backward", b, b + 10) for b in (0, 20, 40)]
    (step,) = analysis.steps(Trace([*events, span(0, TRAINING, "step", 60, 65)]))
    assert (step.begin, step.end, step.backward) == (0, 65, 30)


def test_without_step_marks_the_backwards_cut() -> None:
    events = [span(0, TRAINING, "backward", b, b + 10) for b in (0, 20)]
    assert analysis.windows(Trace([*events, allreduce(0, 25, 40, 1, 4)]), 0) == [(0, 20), (20, 40)]


def test_without_training_all_is_one_step() -> None:
    trace = Trace([allreduce(0, 5, 15, 2, 8), allreduce(0, 25, 40, 3, 12)])
    (step,) = analysis.steps(trace)
    assert (step.begin, step.end, step.under_way, step.exposed) == (5, 40, 25, 0)
    assert analysis.steps(Trace([])) == []


def test_fusion_counts_tensors_operations_and_bytes(trace: Trace) -> None:
    barrier = span(0, COLLECTIVE, "barrier", 0, 1, tensors=1, bytes=0)
    total = analysis.fusion([barrier, *(e for e in trace.events if e.rank == 0)])
    assert (total.tensors, total.operations, total.bytes) == (8, 3, 2400)


def test_on_a_gpu_communication_is_what_the_device_did() -> None:
    args = {"tensors": 3, "bytes": 1000}
    trace = Trace(
        [
            span(0, TRAINING, "backward", 0, 100),
            span(0, ENQUEUE, "allreduce", 20, 22, **args),
            span(0, GPU, "allreduce", 70, 130, **args),
            *tensor(0, 10, 25),
            span(0, TRAINING, "synchronize", 100, 110),
            span(0, TRAINING, "step", 140, 150),
        ]
    )
    (step,) = analysis.steps(trace)
    assert (step.under_way, step.exposed) == (75, 10)
    assert (step.operations, step.tensors, step.bytes) == (1, 3, 1000)


def test_techniques(trace: Trace) -> None:
    assert analysis.techniques(trace) == []
    uses = [("cyclic:parts=4", 100), ("cyclic:parts=4 flush", 400), ("cyclic:parts=4", 96)]
    for at, (text, sent) in enumerate(uses):
        for rank in (0, 1):
            args = {"tensors": 1, "bytes": 400, "technique": text, "called_bytes": sent}
            trace.events.append(span(rank, COLLECTIVE, "allreduce", at, at + 1, **args))
    assert analysis.techniques(trace) == [
        TechniqueUse("cyclic:parts=4", 2, 800, 196),
        TechniqueUse("cyclic:parts=4 flush", 1, 400, 400),
    ]


def test_techniques_are_named_as_users_write_them(trace: Trace) -> None:
    cores = [f"csc:before={before},chunk=64,dense=0+1,keep=0.1,momentum=0" for before in (0, 7)]
    cores.append("half:wire=bf16 flush")
    for at, text in enumerate(cores):
        args = {"tensors": 1, "bytes": 400, "technique": text, "called_bytes": 40}
        trace.events.append(span(0, COLLECTIVE, "allreduce", at, at + 1, **args))
    assert analysis.techniques(trace) == [
        TechniqueUse("csc:chunk_elements=64,keep=0.1", 2, 800, 80),
        TechniqueUse("dense:wire=bf16 flush", 1, 400, 40),
    ]
    assert [one.technique for one in analysis.techniques(trace, verbose=True)] == sorted(cores)


def test_stragglers() -> None:
    events = [ready(1, 10), ready(3, 40), ready(3, 20), ready(3, 90), ready(0, 5)]
    assert analysis.stragglers(Trace(events)) == [
        Straggler(3, 3, 40, 90),
        Straggler(0, 1, 5, 5),
        Straggler(1, 1, 10, 10),
    ]


def test_the_mean_of_no_steps() -> None:
    assert analysis.mean([], "exposed") == 0
    assert analysis.hidden_share([]) is None


def test_levels_of_two_allreduces_at_once(trace: Trace) -> None:
    assert analysis.levels(trace) == []
    assert levels_line(trace) == ""
    (first_inside, second_inside), (first_between, second_between) = INSIDE, BETWEEN
    over_levels = Trace(
        [
            allreduce(0, 0, 60, tensors=1, size=100),
            span(0, SECOND_COLLECTIVE, "allreduce", 30, 90, tensors=1, bytes=100),
            span(0, first_inside, "in the node", 0, 10),
            span(0, first_between, "between nodes", 5, 50),  # 5 with its own node time
            span(0, first_inside, "in the node", 50, 60),  # 10 with the other's wire time
            span(0, second_inside, "in the node", 30, 40),  # 10
            span(0, second_between, "between nodes", 40, 80),
            span(0, second_inside, "in the node", 80, 90),
        ]
    )
    assert analysis.levels(over_levels) == [Levels(0, inside=40, between=75, both=25, overlapped=20)]
    assert analysis.levels(over_levels, 0, 35) == [Levels(0, inside=15, between=30, both=10, overlapped=5)]
    assert "of it 20 us for two allreduces" in levels_line(over_levels)
    assert analysis.moving(over_levels, 0) == [(0, 90)]
    (step,) = analysis.steps(over_levels)
    assert (step.operations, step.bytes) == (2, 200)
