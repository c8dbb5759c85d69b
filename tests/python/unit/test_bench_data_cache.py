"""The numbers that the benchmark of DataCache makes of its measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.data_cache import ratios
from benchmarks.workers.data_cache import Images, augment

SECONDS = {
    "first, with a cache": 2.2,
    "first, without a cache": 2.0,
    "later, from memory": 0.95,
    "later, with a cache": 1.0,
}


def test_ratios_and_picture(tmp_path: Path) -> None:
    seconds = {name: {"median": median} for name, median in SECONDS.items()}
    found = {one["name"]: one["ratio"] for one in ratios(seconds)}
    assert found == {"first epoch / without a cache": pytest.approx(1.1), "memory / later epoch": 0.95}
    from benchmarks.plot import plot_data_cache

    memory = {"kept": 1 << 20, "share": 1 << 20, "mapped": 4 << 20}
    result = {"seconds": seconds, "samples": 64, "delay": 0.01, "ranks": 2, "workers": 2, "memory": memory}
    plot_data_cache(result, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_the_source_is_slow_and_equal() -> None:
    far, near = Images(3, 8, 1e-4), Images(3, 8, 0.0)
    assert all((far[i][0] == near[i][0]).all() for i in range(3))
    image, label = augment(near[2])
    assert label == 2
    assert image.abs().max() <= 1.0
