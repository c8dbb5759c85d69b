"""The numbers that the benchmark of DataCache makes of its measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.data_cache import main, ratios
from benchmarks.report import bars, picture

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
    memory = {"kept": 1 << 20, "share": 1 << 20, "mapped": 4 << 20}
    result = {"seconds": seconds, "samples": 64, "delay": 0.01, "ranks": 2, "workers": 2, "memory": memory}
    picture.draw(bars.data_cache, result, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


@pytest.mark.nightly
def test_a_small_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--samples", "32", "--side", "32", "--delay", "0.001", "--repetitions", "2"]
    main([*small, "--output", str(tmp_path), "--plot", str(tmp_path / "epochs.png")])
    assert "memory / later epoch" in capsys.readouterr().out
    found = json.loads((tmp_path / "data_cache.json").read_text())
    assert len(found["seconds"]) == 6
    assert all(times["median"] > 0 for times in found["seconds"].values())
    assert (found["memory"]["samples"], found["source_reads"]) == (32, 32)
    assert (tmp_path / "epochs.png").read_bytes().startswith(b"\x89PNG")
    main([*small, "--disk", "--output", str(tmp_path)])
    assert len(json.loads((tmp_path / "data_cache_disk.json").read_text())["seconds"]) == 2
