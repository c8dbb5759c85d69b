"""More ranks than a machine can hold are refused before the first one starts."""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
from pathlib import Path

import pytest

import starts
from ranks import ROOT
from roundelay.run import cli
from roundelay.run.errors import UsageError
from roundelay.run.system import limits


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 300 MiB available, no swap and no other limit that counts: /proc and control groups."""
    monkeypatch.setattr(limits, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(limits, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/pid_max").write_text("32768\n")
    (tmp_path / "proc/meminfo").write_text(
        "MemTotal: 900000 kB\nMemAvailable: 307200 kB\nSwapFree: 0 kB\nHugePages_Free: 0\n"
    )
    (tmp_path / "proc/self/cgroup").write_text("")
    return tmp_path


def limit(machine: Path, groups: str, file: str, value: str) -> None:
    """Puts this process into control groups, one of which has a limit."""
    (machine / "proc/self/cgroup").write_text(groups)
    path = machine / "cgroup" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value)


def refusal(ranks: int) -> str:
    """What is said of one rank too many; `ranks` fit."""
    limits.check_ranks(ranks)
    with pytest.raises(UsageError) as raised:
        limits.check_ranks(ranks + 1)
    return str(raised.value)


def test_available_memory(machine: Path) -> None:
    said = "101 ranks do not fit on this machine: they take 303 MiB of memory at least, and the limit is 300 "
    assert refusal(100) == said + "(what is available)"


def test_an_unknown_limit_refuses_no_ranks(machine: Path) -> None:
    (machine / "proc/meminfo").unlink()
    (machine / "proc/sys/kernel/pid_max").unlink()
    limits.check_ranks(10**6)


@pytest.mark.parametrize(
    ("groups", "file", "value", "ranks"),
    [
        ("0::/a/b\n", "a/memory.max", str(30 << 20), 10),  # of the group above
        ("0::/\n", "pids.max", "33\n", 11),
        ("4:memory:/job\n0::/\n", "memory/job/memory.limit_in_bytes", str(60 << 20), 20),
        ("4:memory:/job\n8:cpu,pids:/\n", "pids/pids.max", "6\n", 2),
        ("0::/a\n", "a/pids.max", "max\n", 100),  # none: the memory counts
    ],
)
def test_control_groups(machine: Path, groups: str, file: str, value: str, ranks: int) -> None:
    limit(machine, groups, file, value)
    source = Path(file).name if ranks != 100 else "available"
    assert source in refusal(ranks)


def test_the_users_number_of_processes(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (30, 30))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "they take 33 processes and threads at least, and the limit is 30 (ulimit -u)" in refusal(10)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    limits.check_ranks(100)


def test_the_launcher_refuses_in_one_line(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = machine / "started"
    assert cli.main(["-np", "101", "touch", str(trace)]) == 2
    assert capsys.readouterr().err.startswith("roundelayrun: error: 101 ranks do not fit on this machine: ")
    assert not trace.exists()


def launch_with_files(soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    """A job of 8 ranks whose launcher may have so many files open."""
    job = [*starts.ROUNDELAYRUN, "-np", "8", "--gloo", "echo", "started"]
    return subprocess.run(
        ["sh", "-c", f"ulimit -Sn {soft}; ulimit -Hn {hard}; exec {shlex.join(job)}"],
        env=starts.environment(),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=starts.LIMIT_S,
        check=False,
    )


def test_more_connections_than_files_may_be_open() -> None:
    """The soft limit is raised as far as it takes; the hard one is the machine's last word."""
    done = launch_with_files(soft=12, hard=100)
    assert (done.returncode, done.stdout.count("started")) == (0, 8), done.stderr
    done = launch_with_files(soft=12, hard=60)
    assert done.returncode == 2
    assert (
        done.stderr
        == "roundelayrun: error: the launcher needs 72 open files, and 60 are allowed (ulimit -Hn)\n"
    )
