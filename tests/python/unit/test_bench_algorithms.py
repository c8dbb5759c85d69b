"""The model of time of algorithms without ranks: it fits what it made, and counts messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import algorithms
from benchmarks.algorithms import Model, fitted
from benchmarks.table.markdown import with_table

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


def test_the_page_has_what_was_measured() -> None:
    page, stored = algorithms.PAGE.read_text(), json.loads(algorithms.STORED.read_text())
    assert with_table(page, algorithms.tables(stored), algorithms.BEGIN) == page


@pytest.mark.nightly
def test_a_small_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = algorithms.main
    main(["--quick", "--ranks", "3", "--products", "1", "--repetitions", "1", "--output", str(tmp_path)])
    assert "Ranks on one node" in capsys.readouterr().out
    (found,) = json.loads((tmp_path / "algorithms.json").read_text())["places"]
    assert list(found["jobs"]) == ["1", "2", "3"]
    columns, lines = algorithms.rows(found)
    assert columns == ["partial result", "1 rank", "2 ranks", "fit", "3 ranks", "model"]
    assert [line[0] for line in lines] == ["256 B", "64 KiB", "1 MiB"]
