"""Reading traces, also broken ones."""

import json
from pathlib import Path

import pytest

from roundelay.timeline.events import Trace, parse, read
from roundelay.timeline.intervals import clip, intersect, subtract, total, union

SPAN = {"ph": "X", "pid": 1, "tid": 3, "name": "allreduce", "ts": 5.5, "dur": 2.25, "args": {"bytes": 8}}
MARK = {"ph": "i", "pid": 0, "tid": 4, "name": "ready", "s": "t", "ts": 7, "args": {}}


def test_a_whole_array_is_read() -> None:
    trace = parse(json.dumps([SPAN, MARK]))
    assert not trace.truncated
    assert trace.ranks == [0, 1]
    span = trace.events[0]
    assert (span.phase, span.name, span.rank, span.row) == ("X", "allreduce", 1, 3)
    assert (span.begin, span.duration, span.end, span.args) == (5.5, 2.25, 7.75, {"bytes": 8})


def test_an_object_with_trace_events() -> None:
    assert parse(json.dumps({"traceEvents": [SPAN]})) == parse(json.dumps([SPAN]))


def test_every_truncation_keeps_the_events_that_are_whole() -> None:
    lines = [json.dumps(SPAN), json.dumps(MARK)]
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    first, second = text.index("}}") + 2, text.rindex("}") + 1
    for cut in range(1, len(text)):
        trace = parse(text[:cut])
        assert len(trace.events) == (cut >= first) + (cut >= second)
        assert trace.truncated == ("]" not in text[:cut])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not start with"),
        ("hello", "does not start with"),
        ("{}", "without traceEvents"),
        ('{"traceEvents": 3}', "no array"),
        ("[1]", "no event of a trace: 1"),
        ('[{"ph": "X"}]', "no event of a trace"),
    ],
)
def test_what_is_no_trace_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(text)


def test_dropped_events_are_counted() -> None:
    dropped = {"ph": "i", "pid": 0, "tid": 1, "name": "dropped", "s": "t", "ts": 1}
    trace = parse(json.dumps([dropped | {"args": {"events": 3}}, dropped | {"args": {"events": 4}}, SPAN]))
    assert trace.dropped == 7
    assert Trace([]).dropped == 0


def test_a_file_is_read_and_a_missing_one_raises(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([SPAN]))
    assert read(path).ranks == [1]
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none.json")


def test_intervals_unite_and_subtract() -> None:
    assert union([(5, 7), (1, 2), (2, 3), (6, 9), (4, 4), (8, 3)]) == [(1, 3), (5, 9)]
    assert clip([(0, 4), (6, 9)], 2, 7) == [(2, 4), (6, 7)]
    assert clip([(0, 4)], 5, 7) == []
    assert subtract([(0, 10), (12, 14)], [(-1, 1), (3, 4), (9, 13)]) == [(1, 3), (4, 9), (13, 14)]
    assert subtract([(0, 2)], []) == [(0, 2)]
    assert subtract([(1, 2)], [(0, 3)]) == []
    assert intersect([(0, 10), (12, 14)], [(-1, 1), (9, 13)]) == [(0, 1), (9, 10), (12, 13)]
    assert intersect([(0, 2)], []) == []
    assert total([(0, 2), (1, 5), (7, 8)]) == 6
