"""benchmarks.protocol trains stage by stage, goes on where it was interrupted, and chooses by its rules."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import launch
from benchmarks.protocol import __main__ as command
from benchmarks.protocol.cells import CELLS, CHOOSING, FRESH, RATES, SETTINGS, Setting
from benchmarks.protocol.choices import Losses, difference, worse
from benchmarks.report import protocol as report

_BEST = {"csc": Setting("none", 60), "topk": Setting("local", 0)}


def _loss(spec: dict[str, Any], strategy: str, seed: int) -> float:
    """AdamW ends best at a rate of 0.5x, SGD at 2x; the best settings win, and masking=0 diverges."""
    if strategy == "dense":
        best = 0.5 if spec["optimizer"] == "adamw" else 2.0
        return 1.0 + abs(float(spec["rate"]) - best)
    technique = strategy.partition(":")[0]
    if "masking=0" in strategy and seed == 3:
        return math.nan
    return (2.0 if strategy == _BEST[technique].text(technique, spec["optimizer"]) else 3.0) + seed / 100


class _Ranks:
    """Stands for the ranks: counts the jobs, and is interrupted before a job."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.interrupt_at = -1

    def __call__(
        self, mpirun: None, module: str, ranks: int, spec: dict[str, Any], limit: float
    ) -> list[dict[str, Any]]:
        if len(self.jobs) == self.interrupt_at:
            raise KeyboardInterrupt
        self.jobs.append(spec)
        runs = [
            {"strategy": one, "seed": seed, "curve": [(1, _loss(spec, one, seed), 0.5)]}
            for seed in spec["seeds"]
            for one in spec["strategies"]
        ]
        return [{"runs": runs}, *({} for _ in range(ranks - 1))]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> _Ranks:
    made = _Ranks()
    monkeypatch.setattr(launch, "find_launcher", lambda: None)
    monkeypatch.setattr(launch, "machine", lambda _: {"cores": 2, "cpu": "A", "torch": "2", "python": "3"})
    monkeypatch.setattr(launch, "run_ranks", made)
    return made


def test_it_goes_on_and_chooses(ranks: _Ranks, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = ["--output", str(tmp_path)]
    for interrupted in (3, 40):
        ranks.interrupt_at = interrupted
        with pytest.raises(KeyboardInterrupt):
            command.main(output)
    ranks.interrupt_at = -1
    command.main(output)
    assert len(ranks.jobs) == 8 * len(RATES) + 2 * len(CELLS)  # none was run twice
    assert {tuple(job["seeds"]) for job in ranks.jobs[:-16]} == {CHOOSING}
    assert {tuple(job["seeds"]) for job in ranks.jobs[-16:]} == {FRESH}
    assert all(job["rate"] == (0.5 if job["optimizer"] == "adamw" else 2.0) for job in ranks.jobs[32:])
    losses = Losses(json.loads((tmp_path / "protocol.json").read_text())["jobs"])
    assert losses.chosen() == _BEST
    assert math.isinf(losses.score("topk", Setting("local,masking=0", 0)))
    assert worse(losses, "csc") == worse(losses, "topk") == []
    said = capsys.readouterr().out
    assert "csc: `momentum=none,warmup=60` is worse in no cell. It becomes the default." in said
    assert "topk: the default is the best setting, and stays." in said


def test_a_page_has_the_stages_that_are_complete(ranks: _Ranks, tmp_path: Path) -> None:
    for interrupted, tables in ((31, 0), (33, 1), (50, 2)):
        ranks.interrupt_at = interrupted
        with pytest.raises(KeyboardInterrupt):
            command.main(["--output", str(tmp_path)])
        text = report.text(json.loads((tmp_path / "protocol.json").read_text()))
        assert [f"**{stage}." in text for stage in (1, 2, 3)].count(True) == tables


def test_a_default_stays_if_another_is_worse_in_one_cell(ranks: _Ranks, tmp_path: Path) -> None:
    command.main(["--output", str(tmp_path)])
    jobs = json.loads((tmp_path / "protocol.json").read_text())["jobs"]
    best = _BEST["csc"].text("csc", "sgd")
    jobs[-16]["losses"][best] = [9.0] * len(FRESH)
    assert worse(Losses(jobs), "csc") == [CELLS[0]]
    assert "csc: the default stays" in report.text({"machine": launch.machine(None), "jobs": jobs})  # type: ignore[arg-type]


def test_differences_are_those_of_pairs() -> None:
    found = difference([1.0, 2.0, 3.0, 4.0, 5.0], [0.5, 1.5, 2.5, 3.5, 4.5])
    assert str(found) == "+0.5000 ± 0.0000"
    assert str(difference([1.0, math.inf], [1.0, 1.0])) == "diverged"


def test_the_first_settings_are_the_defaults() -> None:
    assert [settings[0] for settings in SETTINGS.values()] == [Setting("masked", 0), Setting("local", 0)]
