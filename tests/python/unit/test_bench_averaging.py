"""The benchmarks of strategies that talk less often: tables of known numbers, and that they run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.averaging import steps, timeline, training
from benchmarks.contenders import ALONE, AVERAGING, DENSE, NODE, least_sent
from benchmarks.report import averaging as report
from benchmarks.table import averaging
from tests.rig import why_not

MIB = 1 << 20


def rig(nodes: int = 2, others: float = 0.0) -> dict[str, Any]:
    """A wire that needs 1 s for the parameters; a step without communication takes 0.1 s."""
    size = 100e6 / 8 / least_sent(1.0, nodes)
    return {
        "nodes": nodes,
        "mbit": 100,
        "bytes": size,
        "seconds": {ALONE: [0.1], NODE: [0.12], DENSE: [1.0], "daso-8-8": [0.15], "local-4": [0.4]},
        "others": [others],
        "sent": {
            ALONE: [1000.0],
            NODE: [1000.0],
            DENSE: [12.5e6 + 1000],
            "daso-8-8": [1.6e6],
            "local-4": [3.2e6],
        },
        "late": {ALONE: 0, NODE: 0, DENSE: 0, "daso-8-8": 3, "local-4": 0},
    }


def test_the_formula_has_what_the_wire_needs_beyond_the_wait() -> None:
    assert report.formula(rig(4), "daso-8-4", 0.1) == pytest.approx(0.1 + (1.0 - 0.4) / 8)
    assert report.formula(rig(4), "daso-16-16", 0.1) == pytest.approx(0.1)
    assert report.formula(rig(4), ALONE, 0.1) == 0.1


def test_a_new_rig_takes_the_place_of_one_with_as_many_nodes() -> None:
    assert report.instead([rig(2), rig(4)], [rig(2, 0.5)]) == [rig(2, 0.5), rig(4)]


def test_the_rows_of_the_speed_table() -> None:
    found = {"rigs": [rig(4), rig(2)]}
    (daso,) = averaging.results(found, ("daso-8-8",))
    assert daso.own is not None
    assert daso.over_floor is not None
    assert (daso.own.value, round(daso.over_floor.value, 3)) == (0.15, 1.25)
    assert [(peer.name, peer.cost.value) for peer in daso.peers] == [("gradients in every step", 1.0)]
    (busy,) = averaging.results({"rigs": [rig(2, 0.9)]}, ("daso-8-8",))
    assert busy.why == "other processes ran in 1 of 1 repetitions"
    assert [one.why for one in averaging.results({"missing": "no root"}, averaging.DASO)] == ["no root"] * 2


@pytest.mark.nightly
def test_a_short_training(tmp_path: Path) -> None:
    pytest.importorskip("roundelay._core")
    pytest.importorskip("sklearn")
    few = ["--strategies", "dense", "--sweep", training.daso(4, 1), training.daso(8, 8)]
    training.main([*few, "--tasks", "digits", "--seeds", "1", "--steps", "200", "--output", str(tmp_path)])
    (job,) = json.loads((tmp_path / "training.json").read_text())["jobs"]
    sent = [run["sent"] for run in job["runs"]]
    assert sent[0] == 1.0
    assert sent[1:] == pytest.approx([0.52, 0.44])
    assert (tmp_path / "averaging_training.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
@pytest.mark.skipif(bool(why_not()), reason=f"no rig: {why_not()}")
def test_steps_send_the_bytes_of_their_formula(tmp_path: Path) -> None:
    pytest.importorskip("roundelay._core")
    few = ["--nodes", "2", "--repetitions", "1", "--contenders", "dense", "daso-4-1"]
    steps.main([*few, "--output", str(tmp_path)])
    (found,) = json.loads((tmp_path / "steps.json").read_text())["rigs"]
    least = least_sent(found["bytes"], 2)
    for name in ("dense", "daso-4-1"):
        assert found["sent"][name][0] / AVERAGING[name].bytes(least) == pytest.approx(1.0, abs=0.05)


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not()), reason=f"no rig: {why_not()}")
def test_a_timeline_has_transfers_across_steps(tmp_path: Path) -> None:
    pytest.importorskip("roundelay._core")
    pytest.importorskip("matplotlib")
    picture = tmp_path / "daso.png"
    found = timeline.record(
        timeline.parse(["--timeline", str(tmp_path / "job.json"), "--picture", str(picture)])
    )
    for rank in found:
        assert len(rank["seconds"]) >= 2  # every other transfer is the other rank's of the node
        assert min(rank["spans"]) >= 2
    assert picture.read_bytes().startswith(b"\x89PNG")
