"""benchmarks.correction asks for trainings at a rate that stays, and its table is that of known numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import correction, launch


def run(strategy: str, seed: int, loss: float) -> dict[str, Any]:
    return {"strategy": strategy, "seed": seed, "curve": [(1, 9.0, 0.0), (2, loss, 0.5)], "sent": 1.0}


def test_a_row_has_the_means_and_ranges_and_what_diverges() -> None:
    dense, masked, local, none = correction.STRATEGIES.values()
    losses = {dense: (0.25, 0.75), masked: (1.0, 1.0), local: (float("nan"), 1.0), none: (float("inf"),) * 2}
    runs = [run(strategy, seed, losses[strategy][seed]) for seed in (0, 1) for strategy in losses]
    assert correction.cells({"rate": 0.5, "runs": runs}) == [
        "0.5x",
        "0.500 (0.250 to 0.750), 50.0%",
        "1.000 (1.000 to 1.000), 50.0%",
        "1 of 2 diverge",
        "2 of 2 diverge",
    ]


def test_every_rate_is_a_job_of_all_strategies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def run_ranks(
        mpirun: None, module: str, ranks: int, spec: dict[str, Any], limit: float
    ) -> list[dict[str, Any]]:
        asked.append((module, ranks, spec["rate"], spec["falls"], spec["seeds"]))
        return [{"runs": [run(strategy, 0, spec["rate"]) for strategy in spec["strategies"]]}, {}]

    monkeypatch.setattr(launch, "find_launcher", lambda: None)
    monkeypatch.setattr(launch, "machine", lambda _: {"cores": 2})
    monkeypatch.setattr(launch, "run_ranks", run_ranks)
    correction.main(["--rates", "0.5", "2", "--seeds", "3", "--output", str(tmp_path)])
    assert asked == [("benchmarks.workers.convergence", 2, rate, False, [0, 1, 2]) for rate in (0.5, 2.0)]
    stored = json.loads((tmp_path / "correction.json").read_text())
    assert [job["rate"] for job in stored["jobs"]] == [0.5, 2.0]
    assert "2.000 (2.000 to 2.000)" in capsys.readouterr().out
