"""benchmarks.eight_bits: its rows, of numbers that are known."""

from __future__ import annotations

from benchmarks import eight_bits


def test_what_is_exposed_is_beyond_a_step_without_communication() -> None:
    dense, bf16, quantised = eight_bits.STRATEGIES
    cell = {
        "nodes": 2,
        "buckets": 4,
        "sent": {"none": 0.0, dense: 1000.0, bf16: 500.0, quantised: 254.0},
        "seconds": {"none": 1.0, dense: 5.0, bf16: 3.0, quantised: 2.0},
    }
    rows = eight_bits.rows([cell])
    assert rows[0] == ["2", "4", f"`{dense}`", "1000 B", "1.000x", "5 s", "4 s", "1.000x"]
    assert rows[2] == ["2", "4", f"`{quantised}`", "254 B", "0.254x", "2 s", "1 s", "0.250x"]
