"""The benchmark of trust ratios runs, and its model gives known numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import lars


def test_the_model_adds_up_the_seconds_of_each_way() -> None:
    cluster = lars.Cluster(ranks=8, kernel=1.0, memory=2.0, alpha=10.0, wire=40.0)
    found = cluster.seconds(layers=100, size=16, largest_share=4)
    assert found == {"per layer": 216.0, "multi-tensor": 18.0, "shared": 2 + 4 + 30 + 10}
    cell = lars.modelled("resnet50")
    assert lars.row(128, cell)[:3] == ["resnet50", "128", "161"]


@pytest.mark.slow
def test_a_small_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--models", "resnet50", "--ranks", "2", "--calls", "1", "--repetitions", "2"]
    lars.main([*small, "--output", str(tmp_path)])
    assert "multi-tensor / shared" in capsys.readouterr().out
    found = json.loads((tmp_path / "lars.json").read_text())
    (cell,) = found["jobs"][0]["cells"]
    assert cell["layers"] == 161
    assert all(cell["seconds"][way]["median"] > 0 for way in lars.WAYS)
    assert (tmp_path / "lars.png").read_bytes().startswith(b"\x89PNG")
