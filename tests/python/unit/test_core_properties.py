"""Properties of the codec of control messages."""

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


FORMAT = testing.encode_report([], [], False)[0]


@settings(max_examples=500)
@given(st.binary(max_size=80), st.integers(0, 24))
def test_any_bytes_are_refused_or_have_one_meaning(rest: bytes, kind: int) -> None:
    testing.codec_roundtrip(bytes([FORMAT, kind]) + rest)  # raises if the meaning has another encoding
