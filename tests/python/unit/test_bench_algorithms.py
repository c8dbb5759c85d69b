"""The model of time of algorithms without ranks: it fits what it made, and counts messages."""

from __future__ import annotations

import pytest

from benchmarks.algorithms import Model, fitted

SIZES = (256, 65536, 1 << 20)


def test_the_fit_finds_the_model_again() -> None:
    model = Model(alpha=40e-6, per_byte=0.5e-9)
    alone = {size: 3e-3 + size * 2e-9 for size in SIZES}
    together = {size: model.step(alone[size], size, 2, cores=2) for size in SIZES}
    found = fitted(alone, together, 2, cores=2)
    assert found.alpha == pytest.approx(model.alpha, rel=1e-6)
    assert found.per_byte == pytest.approx(model.per_byte, rel=1e-6)


@pytest.mark.parametrize(("ranks", "messages"), [(1, 0), (2, 2), (3, 4), (4, 4), (5, 6), (8, 6)])
def test_messages_up_and_down_the_tree(ranks: int, messages: int) -> None:
    assert Model(1.0, 0.0).step(0.0, 100, ranks, cores=64) == messages
    assert Model(0.0, 1.0).step(0.0, 100, ranks, cores=64) == 100 * messages


def test_ranks_beyond_the_cores_compute_no_faster() -> None:
    assert Model(0.0, 0.0).step(8.0, 1, 4, cores=2) == 4.0
