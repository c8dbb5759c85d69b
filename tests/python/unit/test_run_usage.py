"""Hosts, hostfiles, and wrong use: one line that names the cause, and exit status 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roundelay import __version__
from roundelay import cli as roundelay_cli
from roundelay.run import cli
from roundelay.run.errors import UsageError
from roundelay.run.system import hosts
from roundelay.run.system.hosts import Host


def test_hosts_are_parsed_and_those_with_ranks_are_used() -> None:
    assert hosts.parse_hosts("a:2, b") == [Host("a", 2), Host("b", 1)]
    assert hosts.used([Host("a", 2), Host("b", 3), Host("c", 1)], 4) == [Host("a", 2), Host("b", 2)]


def test_a_host_that_is_listed_twice(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"host 'a' is listed twice in 'a:2,b:1,a:3': give it"):
        hosts.parse_hosts("a:2,b:1,a:3")
    file = tmp_path / "hosts"
    file.write_text("a slots=2\nb\n# again\na slots=1\n")
    with pytest.raises(UsageError, match=r"hosts:4: host 'a' is listed twice \(line 1\)"):
        hosts.read_hostfile(str(file))
    with pytest.raises(UsageError, match=r"localhost and 127\.0\.0\.1 \(from -H\) are the same host"):
        hosts.check([Host("localhost", 1), Host("127.0.0.1", 1)], 2, "-H", [])


@pytest.mark.parametrize("text", ["", "a:", "a:x", "a:0", ":2", "a,,b", "a:-1"])
def test_bad_hosts(text: str) -> None:
    with pytest.raises(UsageError, match="bad host"):
        hosts.parse_hosts(text)


def test_hostfile(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# ours\na slots=2\n\nb:3  # with a colon\nc\nd slots=4 max_slots=8\n")
    assert hosts.read_hostfile(str(file)) == [Host("a", 2), Host("b", 3), Host("c", 1), Host("d", 4)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a slots=x\n", ":1: bad slots 'x'"),
        ("a\nb slots=0\n", ":2: bad slots '0'"),
        ("a cpus=3\n", ":1: bad word 'cpus=3'"),
        ("# nobody\n", "names no host"),
    ],
)
def test_bad_hostfiles(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(text)
    with pytest.raises(UsageError, match=complaint) as raised:
        hosts.read_hostfile(str(file))
    assert str(file) in str(raised.value)


def test_names_and_addresses_of_this_machine_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here.example")
    monkeypatch.setattr(
        "roundelay.run.system.interfaces.addresses", lambda: {"lo": ["127.0.0.1"], "a0": ["192.0.2.7"]}
    )
    assert all(map(hosts.is_local, ("localhost", "127.0.0.1", "here", "here.example", "192.0.2.7")))
    assert not any(map(hosts.is_local, ("127.0.0.2", "192.0.2.8", "there", "here.other")))


def test_local_hosts_alone_are_one_machine() -> None:
    assert hosts.one_machine([], {})
    assert hosts.one_machine([Host("localhost", 2)], {"SLURM_JOB_ID": "1"})
    assert not hosts.one_machine([], {"SLURM_JOB_ID": "1"})
    assert not hosts.one_machine([Host("localhost", 2), Host("far.invalid", 2)], {})


def test_a_start_command_of_the_users_own_may_know_more_hosts() -> None:
    unknown = [Host("far.invalid", 2)]
    with pytest.raises(UsageError, match=r"unknown host .far\.invalid. .from -H far"):
        hosts.check(unknown, 2, "-H far.invalid:2", [])
    hosts.check(unknown, 2, "-H far.invalid:2", ["--mca", "plm_rsh_agent", "/opt/start"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-np", "0", "true"], "-np/--num-proc: '0' is not a number of ranks, at least 1"),
        (["-np", "two", "true"], "-np/--num-proc: 'two' is not a number of ranks"),
        (["true"], "give -np N"),
        (["-np", "2"], "the program is missing"),
        (["-np", "2", "no-such-program"], "'no-such-program' is missing: not found on PATH"),
        (["-np", "2", "./no-such-program"], "'./no-such-program' is missing: no such file"),
        (["-np", "2", "-H", "no-such-host.invalid:2", "true"], "unknown host 'no-such-host.invalid'"),
        (["-np", "4", "-H", "localhost:2", "true"], "more ranks than the 2 slots that -H localhost:2 gives"),
        (["-np", "2", "-hostfile", "/no/such/file", "true"], "cannot read the hostfile '/no/such/file'"),
        (["-np", "2", "-H", "a", "--hostfile", "b", "true"], "not allowed with argument"),
        (["-np", "2", "--timeline-filename", "/no/such/t.json", "true"], "cannot write --timeline-filename"),
        (["-np", "2", "--timeline-filename", "/", "true"], "it is a folder"),
        (["-np", "2", "--timeline-filename", "/dev/full", "true"], "'/dev/full': no space left on device"),
        (["-np", "2", "--timeline-filename", "/proc/x", "true"], "'/proc/x': no such file or directory"),
        (
            ["-np", "2", "--output-filename", "/proc/out", "true"],
            "cannot write --output-filename '/proc/out/",
        ),
        (["-np", "2", "--fusion-threshold-mb", "-1", "true"], "--fusion-threshold-mb: '-1' is not"),
        (["-np", "2", "--log-level", "loud", "true"], "--log-level"),
        (["-np", "2", "--no-such-flag", "true"], "--no-such-flag (see roundelayrun --help)"),
        (["--np", "2", "true"], "unrecognized arguments: --np: did you mean -np?"),
        (["-np", "2", "--timeline=job.json", "true"], ": did you mean --timeline-filename?"),
        (["-np", "2", "--dryrun", "true"], ": did you mean --dry-run?"),
        (["--nproc-per-node", "2", "true"], ": did you mean -np?"),
        (["-np", "2", "--oversubscribe", "true"], ": more ranks than cores need no flag"),
        (["-np", "2", "/usr", "true"], "the program '/usr' is a folder"),
        (["-np", "2", "-p", "x", "true"], "--ssh-port: 'x' is not a port"),
        (["-np", "2", "-i", "/no/such/key", "true"], "cannot read the key -i '/no/such/key'"),
        (["-np", "2", "--config-file", "/no/such/file", "true"], "cannot read --config-file '/no/such/file'"),
        (
            ["-np", "2", "--gloo", "--mpi-args=-x", "true"],
            "--mpi-args are for mpirun, which --gloo",
        ),
        (["-np", "2", "--gloo", "--binding-args=--bind-to core", "true"], "--binding-args are for mpirun"),
        (
            ["-np", "2", "-H", "192.0.2.7:2", "--network-interfaces", "no0", "true"],
            "--network-interfaces: there is no network interface 'no0' here, but lo",
        ),
    ],
)
def test_wrong_use_is_one_line_and_status_2(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("roundelayrun: error: ")
    assert complaint in said.err


def test_a_script_that_is_no_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("print()\n")
    assert cli.main(["-np", "2", str(script)]) == 2
    assert f"did you mean 'python {script}'?" in capsys.readouterr().err


def test_version_and_check_build(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-v"]) == 0
    assert capsys.readouterr().out.strip() == __version__
    assert cli.main(["-cb"]) == 0
    shown = capsys.readouterr().out
    for heading in ("Available Frameworks:", "Available Controllers:", "Available Tensor Operations:"):
        assert heading in shown
    assert roundelay_cli.main(["--check-build"]) == 0
    assert capsys.readouterr().out == shown


def test_roundelay_run_is_roundelayrun(capsys: pytest.CaptureFixture[str]) -> None:
    assert roundelay_cli.main(["run", "-np", "0", "true"]) == 2
    assert "'0' is not a number of ranks" in capsys.readouterr().err


def test_roundelay_without_a_command_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert roundelay_cli.main([]) == 2
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in roundelay_cli.COMMANDS)


@pytest.mark.parametrize("words", [[], ["timeline", "--help"], ["timeline", "job.json"], ["run", "--help"]])
def test_a_command_whose_output_nobody_reads_ends_quietly(words: list[str], tmp_path: Path) -> None:
    span = {"ph": "X", "pid": 0, "tid": 1, "name": "backward", "ts": 0, "dur": 1}
    (tmp_path / "job.json").write_text(json.dumps([span]))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        command = [sys.executable, "-m", "roundelay.cli", *words]
        ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, cwd=tmp_path, check=False)
    assert not ended.stderr
