"""The benchmark of selections runs, and its ways to select agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import top_k


def test_the_ways_select_the_same_energy() -> None:
    torch.manual_seed(0)  # of the sample
    tensor = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    known = top_k.ways(tensor, 1000)
    best = top_k.energy(known["torch.topk"]()[0])
    for name, way in known.items():
        values, indices = way()
        assert torch.equal(values, tensor[indices]), name
        if name != "sampled":
            assert values.numel() == 1000, name
            assert top_k.energy(values) >= 0.999 * best, name
        else:
            assert 500 <= values.numel() <= 1000


@pytest.mark.slow
def test_a_small_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    top_k.main(["--sizes", "64K", "--repetitions", "3", "--output", str(tmp_path)])
    assert "torch.topk / mstopk" in capsys.readouterr().out
    found = json.loads((tmp_path / "top_k.json").read_text())
    assert len(found["cells"]) == 5
    text = top_k.page_text(found)
    assert text.count("heavy-tailed") == 1
    assert (tmp_path / "top_k.png").read_bytes().startswith(b"\x89PNG")
