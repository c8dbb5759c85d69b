"""Flags of horovodrun: what they set, why they are refused or have no effect; and its YAML file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from roundelay.run import cli
from roundelay.run.arguments import knobs, parser, unsupported_flags
from roundelay.run.launcher import job
from roundelay.run.starter import local_ranks


@pytest.mark.parametrize("flag", [flag for flags in unsupported_flags.REFUSED for flag in flags])
def test_a_flag_is_refused_by_name_with_the_reason(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-np", "2", flag, "3", "true"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"roundelayrun: error: {flag}: ")
    assert said.count("\n") == 1


def test_flags_without_effect_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        word for flag, (values, _) in unsupported_flags.NO_EFFECT.items() for word in [flag, *["1"] * values]
    ]
    assert cli.main(["-np", "2", "--gloo", *words, "--dry-run", "true", "arg"]) == 0
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) == len(unsupported_flags.NO_EFFECT)
    assert "--disable-cache has no effect: nothing is checked before the start" in shown.err
    assert shown.out.strip().endswith("-- true arg")


def dry_run(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert cli.main(["-np", "2", *words, "--dry-run", "true"]) == 0
    return shlex.split(capsys.readouterr().out)


def test_the_pointer_cache_is_preloaded_before_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any("LD_PRELOAD" in word for word in dry_run(capsys, "--gloo"))
    monkeypatch.setenv("LD_PRELOAD", "libm.so.6")
    (preloaded,) = (
        word.removeprefix("LD_PRELOAD=")
        for word in dry_run(capsys, "--gloo", "--pointer-cache")
        if word.startswith("LD_PRELOAD=")
    )
    library, others = preloaded.split(":")
    assert Path(library).is_file()
    assert Path(library).name == "libroundelay_pointer_cache.so"
    assert others == "libm.so.6"


def test_interfaces_and_tcp_reach_every_library(capsys: pytest.CaptureFixture[str]) -> None:
    words = dry_run(
        capsys, "--gloo", "--network-interfaces", "lo,eth9", "--network-interface", "ib0", "--tcp"
    )
    for name in ("ROUNDELAY_INTERFACE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        assert f"{name}=lo,eth9,ib0" in words
    assert {"NCCL_IB_DISABLE=1", "FI_PROVIDER=tcp"} <= set(words)


def test_several_hosts_without_mpi(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.touch()
    monkeypatch.setenv("SECRET", "do-not-show")
    words = dry_run(
        capsys,
        "--gloo",
        "-H",
        "localhost:1,127.0.0.2:4",
        "-p",
        "2222",
        "-i",
        str(key),
        "--start-timeout",
        "10",
    )
    assert "do-not-show" not in " ".join(words)
    plan = json.loads(next(word for word in words if word.startswith("{")))
    assert plan["hosts"] == [["localhost", 1], ["127.0.0.2", 1]]
    assert plan["local"] == ["localhost"]
    assert plan["ssh"][-4:] == ["-p", "2222", "-i", str(key)]
    assert {"BatchMode=yes", "ConnectTimeout=8"} <= set(plan["ssh"])
    assert "SECRET" in plan["exports"]
    assert "HOME" not in plan["exports"]


@pytest.mark.parametrize(
    ("said", "seconds"),
    [({}, 30.0), ({"HOROVOD_START_TIMEOUT": "7"}, 7.0), ({"ROUNDELAY_START_TIMEOUT": "1.5"}, 1.5)],
)
def test_the_start_timeout_is_the_variables_too(said: dict[str, str], seconds: float) -> None:
    assert job.start_timeout(said) == seconds
    flag = knobs.variables(parser.parse("roundelayrun", ["--start-timeout", "9.5"]))
    assert job.start_timeout({**said, **flag}) == 9.5


def test_a_number_keeps_all_its_digits() -> None:
    words = ["--stall-check-warning-time-seconds", "1234567.8", "--cycle-time-ms", "2"]
    assert knobs.variables(parser.parse("roundelayrun", words)) == {
        "ROUNDELAY_STALL_CHECK_TIME_SECONDS": "1234567.8",
        "ROUNDELAY_CYCLE_TIME": "2",
    }


def test_a_time_of_0_until_the_warning_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-np", "2", "--stall-check-warning-time-seconds", "0", "true"]) == 2
    said = capsys.readouterr().err
    assert "--stall-check-warning-time-seconds: '0' is not a number of seconds, above 0" in said


def test_what_an_outer_launcher_has_set_is_left_behind() -> None:
    stale = dict.fromkeys(
        ["RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_SIZE", "TORCHELASTIC_RUN_ID"], "1"
    )
    kept = dict.fromkeys(["PATH", "MASTER_ADDR", "OMPI_MCA_btl", "PMIX_MCA_gds", "ROUNDELAY_THETA"], "1")
    assert local_ranks.without_outer_job({**stale, **kept}) == kept


CONFIG = """
controller: gloo
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 2.5
  hierarchical_allreduce: false
autotune:
  enabled: yes
  steps_per_sample: 5
timeline:
  filename: t.json
stall_check:
  enabled: false
library_options:
logging:
  level: debug
  with_timestamp: false
"""


def parse(tmp_path: Path, text: str, *words: str) -> dict[str, str]:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    given = parser.parse("roundelayrun", ["-np", "2", "--config-file", str(file), *words, "true"])
    way = "auto" if given.launch_mode is None else given.launch_mode.flag.removeprefix("--")
    return {"way": way, "no_effect": ",".join(given.no_effect), **knobs.variables(given)}


def test_a_config_file_says_what_flags_say(tmp_path: Path) -> None:
    assert parse(tmp_path, CONFIG) == {
        "way": "gloo",
        "no_effect": "--no-hierarchical-allreduce",
        "ROUNDELAY_FUSION_THRESHOLD": str(32 << 20),
        "ROUNDELAY_CYCLE_TIME": "2.5",
        "ROUNDELAY_AUTOTUNE": "1",
        "ROUNDELAY_AUTOTUNE_STEPS_PER_SAMPLE": "5",
        "ROUNDELAY_TIMELINE": "t.json",
        "ROUNDELAY_STALL_CHECK_DISABLE": "1",
        "ROUNDELAY_LOG_LEVEL": "debug",
        "ROUNDELAY_LOG_HIDE_TIME": "1",
    }


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    words = ["--mpi", "--fusion-threshold-mb", "1", "--no-autotune", "--stall-check"]
    said = parse(tmp_path, CONFIG, *words)
    assert said["way"] == "mpi"
    assert said["ROUNDELAY_FUSION_THRESHOLD"] == str(1 << 20)
    assert said["ROUNDELAY_AUTOTUNE"] == said["ROUNDELAY_STALL_CHECK_DISABLE"] == "0"
    assert said["ROUNDELAY_CYCLE_TIME"] == "2.5"


def test_an_empty_config_file(tmp_path: Path) -> None:
    assert parse(tmp_path, "# nothing\n") == {"way": "auto", "no_effect": ""}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "params:\n  fusion_treshold_mb: 3\n",
            ":2: unknown key 'fusion_treshold_mb' in section 'params'; did you mean 'fusion_threshold_mb'?",
        ),
        ("parms:\n  cycle_time_ms: 3\n", ":1: unknown key 'parms' in the file; did you mean 'params'?"),
        ("xyz: 1\n", ":1: unknown key 'xyz' in the file; known are controller, params"),
        ("params: 3\n", ":1: section 'params' must be a mapping"),
        ("- params\n", ":1: the file must be a mapping"),
        ("params:\n  cycle_time_ms: [3]\n", ":2: 'cycle_time_ms' must be one value"),
        ("autotune:\n  enabled: perhaps\n", ":2: 'enabled' must be true or false, not 'perhaps'"),
        ("controller: nccl\n", ":1: there is no controller 'nccl': want gloo or mpi"),
        ("params:\n  cycle_time_ms: 1\n  cycle_time_ms: 2\n", ":3: 'cycle_time_ms' is given twice"),
        ("params: {\n", "no YAML: "),
        (
            "params:\n  cycle_time_ms: -1\n",
            ": argument --cycle-time-ms: '-1' is not a number of ms",
        ),
    ],
)
def test_a_config_file_that_is_wrong(
    text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert cli.main(["-np", "2", "--config-file", str(file), "true"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"roundelayrun: error: {file}")
    assert said.count("\n") == 1
    assert complaint in said
