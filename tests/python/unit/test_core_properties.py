"""Properties of the core's pure parts: the codec and the fusion plan."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from roundelay._core import testing

IDS = st.lists(st.integers(1, 2**32 - 1), unique=True, max_size=200).map(sorted)
DENSE_IDS = st.integers(1, 10**6).flatmap(
    lambda first: st.integers(0, 500).map(lambda n: list(range(first, first + n)))
)
TENSORS = st.lists(
    st.tuples(st.text(max_size=30), st.lists(st.integers(0, 2**63 - 1), max_size=6)), max_size=8
)


@given(TENSORS, IDS | DENSE_IDS, st.booleans())
def test_reports_come_back_as_they_were(
    tensors: list[tuple[str, list[int]]], cached: list[int], flush: bool
) -> None:
    message = testing.encode_report(tensors, cached, flush)
    assert testing.decode_report(message) == (tensors, cached, flush)
    assert testing.codec_roundtrip(message)


@given(TENSORS, IDS, st.data())
def test_a_prefix_of_a_report_is_no_message(
    tensors: list[tuple[str, list[int]]], cached: list[int], data: st.DataObject
) -> None:
    message = testing.encode_report(tensors, cached, False)
    length = data.draw(st.integers(0, len(message) - 1))
    assert not testing.codec_roundtrip(message[:length])


@settings(max_examples=500)
@given(st.binary(max_size=80), st.integers(0, 9))
def test_any_bytes_are_refused_or_have_one_meaning(rest: bytes, kind: int) -> None:
    testing.codec_roundtrip(bytes([1, kind]) + rest)  # raises if the meaning has another encoding


PLANS = st.lists(st.tuples(st.integers(0, 100), st.integers(-1, 3)), max_size=40)


@given(PLANS, st.integers(0, 200), st.integers(0, 200))
def test_a_plan_has_every_tensor_once_and_keeps_its_limits(
    tensors: list[tuple[int, int]], threshold: int, theta: int
) -> None:
    sizes = [size for size, _ in tensors]
    classes = [kind for _, kind in tensors]
    plan = testing.plan(sizes, classes, threshold, theta)
    assert sorted(index for members in plan for index in members) == list(range(len(tensors)))
    for members in plan:
        assert len({classes[index] for index in members}) == 1
        assert members == sorted(members)
        if len(members) > 1:
            assert classes[members[0]] >= 0
            assert sum(sizes[index] for index in members) <= threshold
    assert plan == testing.plan(sizes, classes, threshold, theta)
