"""Several hosts without MPI, over a stand-in for ssh that starts them here, under loopback addresses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import roundelay
from hosts_here import SSH, local_ssh
from in_time import crowd, expect_within
from launch_job import LIMIT_S, PROMISED_S, Job
from programs import ending
from rank_program import program
from roundelay.run.starter import on_host

THREE = "127.0.0.2:2,127.0.0.3:1,127.0.0.4:3"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path, way=("--gloo",), bin=local_ssh(tmp_path))
    yield job
    job.end()


def listeners(job: Job) -> set[str]:
    """The addresses, as /proc has them, where processes of the job listen for TCP."""
    inodes = set()
    for line in job.left():
        for entry in Path(f"/proc/{line.partition(':')[0]}/fd").iterdir():
            inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(entry)))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                found.add(words[1].partition(":")[0])
    return found


def test_ranks_are_numbered_by_host_on_uneven_hosts(job: Job) -> None:
    status, out, err = job.run(6, program(ending.says_its_place, str(Path.cwd())), "-H", THREE)
    assert status == 0
    assert [line.partition(":")[0] for line in err.splitlines()] == ["roundelayrun"]  # no hvd.init()
    places = [(0, 2, 0, 2), (1, 2, 0, 2), (0, 1, 1, 3), (0, 3, 2, 4), (1, 3, 2, 4), (2, 3, 2, 4)]
    assert sorted(out.splitlines()) == [
        f"[rank {rank}] {rank} 6 {local} {size} {host} 127.0.0.1 {name} True"
        for rank, (local, size, host, name) in enumerate(places)
    ]


def test_ranks_have_the_variables_of_horovodrun_on_uneven_hosts(job: Job) -> None:
    status, out, err = job.run(6, program(ending.says_its_place_in_horovods_words), "-H", THREE)
    assert status == 0
    assert [line.partition(":")[0] for line in err.splitlines()] == ["roundelayrun"]  # no hvd.init()
    # The second rank of the third host is the second one of those with local rank 1.
    places = ["0 2 0 3", "1 2 0 2", "0 1 1 3", "0 3 2 3", "1 3 1 2", "2 3 0 1"]
    assert sorted(out.splitlines()) == [
        f"[rank {rank}] {rank} 6 {place} gloo gloo" for rank, place in enumerate(places)
    ]


def test_secrets_are_in_no_list_of_processes_and_only_loopback_listens(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "swordfish")
    with job.start(3, program(ending.tells_a_secret_and_sleeps), "--verbose", "-H", THREE) as process:
        job.wait_ready(3)
        told = [(job.folder / f"secret.{rank}").read_text() for rank in range(3)]
        assert told == ["swordfish"] * 3
        lines = job.left()  # with their command lines, as anyone on the machine can see them
        assert (
            len(lines) >= 9
        )  # the launcher, several_hosts.py, two of ssh or what it started, three agents and programs
        assert not any("swordfish" in line for line in lines)
        assert listeners(job) == {"0100007F"}  # 127.0.0.1, of the launcher and of rank 0
        process.send_signal(signal.SIGINT)
        status, out, err = job.finish(process)
    assert status == 130
    assert "swordfish" not in out + err


def test_every_host_that_is_not_there_is_named_and_none_starts(job: Job) -> None:
    started = time.monotonic()
    hosts = "127.0.0.2:1,127.0.9.1:1,127.0.9.2:1,127.0.8.1:1"
    status, out, err = job.run(4, program(ending.is_ready), "-H", hosts)
    expect_within(PROMISED_S, time.monotonic() - started)
    assert (status, out) == (1, "")
    lines = err.splitlines()
    for line, host in zip(lines[:2], ("127.0.9.1", "127.0.9.2"), strict=True):
        why = f"ssh: connect to host {host} port 22: No route to host"
        cure = f"`ssh {host} true` must work without a password"
        assert line == f"roundelayrun: {host} cannot be reached: {why}; {cure}"
    assert lines[2].startswith("roundelayrun: 127.0.8.1 cannot start ranks: sh: 1: ")
    assert len(lines) == 3
    assert not list(job.folder.glob("ready.*"))


@pytest.mark.slow
def test_a_host_that_does_not_answer_in_time(job: Job) -> None:
    started = time.monotonic()
    hosts, limit_s = "127.0.0.2:1,127.0.7.1:1", 10  # in which the other host's rank surely starts
    status, _, err = job.run(2, program(ending.is_ready), "-H", hosts, "--start-timeout", str(limit_s))
    expect_within(limit_s + PROMISED_S, time.monotonic() - started)
    assert status == 1
    assert err.startswith("roundelayrun: 127.0.7.1 does not answer in time; `ssh 127.0.7.1 true` must work")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ({"program": ["no-such-program"]}, "the program 'no-such-program' is missing or not executable"),
        (
            {"folder": "/no/such/folder"},
            "cannot enter the folder '/no/such/folder': No such file or directory",
        ),
        ({"interfaces": ["no0"]}, "there is no network interface 'no0' here, but "),
        ({"ranks": 10**9}, "1000000000 ranks do not fit on this machine: "),
        ({"facing": ["no-such-host.invalid"]}, "no network interface faces the other hosts"),
    ],
)
def test_a_host_that_lacks_what_the_plan_needs(plan: dict[str, object], complaint: str) -> None:
    whole = on_host.HostPlan({}, "/", ["true"], 1, [], ["127.0.0.1"], serves=False)
    line = json.dumps({**json.loads(whole.to_line()), **plan}) + "\n{}\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", on_host.__file__],
        input=line.encode(),
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout.startswith(on_host.ANSWER)
    assert json.loads(done.stdout[len(on_host.ANSWER) :])["error"].startswith(complaint)


def test_a_function_reaches_all_hosts(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{job.bin}:{os.environ['PATH']}")
    big = bytes(range(256)) * (1 << 15)  # 8 MiB: more than a pipe holds

    def place(given: bytes) -> tuple[int, str, bool]:
        return int(os.environ["RANK"]), os.environ["ROUNDELAY_NODE_ID"], given == big

    found = roundelay.run(place, (big,), np=3, hosts="127.0.0.2:2,127.0.0.3:1")
    assert found == [(0, "127.0.0.2", True), (1, "127.0.0.2", True), (2, "127.0.0.3", True)]


@pytest.mark.slow
def test_a_function_that_a_host_does_not_read(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    assert job.bin is not None
    # Answers the plan as a host does, and then reads no more.
    deaf = """case $host in 127.0.0.3) head -n 1 >/dev/null; echo 'roundelay: {}'; exec sleep 60 ;; esac"""
    (job.bin / "ssh").write_text(SSH.replace("exec sh", f"{deaf}\nexec sh"))
    monkeypatch.setenv("PATH", f"{job.bin}:{os.environ['PATH']}")
    limit_s = round(3 * crowd())  # the host must answer in most of it
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"rank 1 .*start"):
        roundelay.run(len, (bytes(8 << 20),), np=2, hosts="127.0.0.2:1,127.0.0.3:1", start_timeout=limit_s)
    expect_within(limit_s + PROMISED_S, time.monotonic() - started)


def test_a_killed_rank_is_named_with_its_host_and_nothing_is_left(job: Job) -> None:
    status, _, err = job.run(3, program(ending.is_killed_and_others_are_stubborn), "-H", THREE)
    expect_within(PROMISED_S, job.seconds_since_failure())
    assert status == 137
    assert re.search(
        r"rank 2 \(pid \d+ on \S+\) failed first: killed by SIGKILL \(signal 9\): .*dmesg",
        err.splitlines()[-1],
    )


@pytest.mark.slow
def test_ranks_that_are_stopped_end_with_the_others(job: Job) -> None:
    status, _, _ = job.run(3, program(ending.exits_with_3_while_others_are_stopped), "-H", THREE)
    expect_within(PROMISED_S, job.seconds_since_failure())
    assert status == 3


@pytest.mark.parametrize(
    ("who", "forks"),
    [("roundelay.run.cli", True), ("several_hosts.py", True), ("on_host.py", False)],
    ids=["launcher", "several", "host"],
)
def test_nothing_outlives_what_started_it(job: Job, who: str, forks: bool) -> None:
    """The launcher, what stands in mpirun's place, or a host's end of ssh is killed."""
    with job.start(3, program(ending.sleeps_stubbornly, forks), "-H", THREE) as process:
        job.wait_ready(3)
        victims = [line for line in job.left() if who in line.partition("\0--\0")[0]]
        assert victims
        os.kill(int(victims[-1].partition(":")[0]), signal.SIGKILL)
        job.expect_nothing_left(within_s=PROMISED_S + 1.0)
        assert process.wait(LIMIT_S) != 0
        if who == "on_host.py":
            assert process.stderr is not None
            assert re.search(rb"rank \d \(pid \d+ on \S+\) failed first: killed by", process.stderr.read())


def test_ctrl_c_reaches_every_host(job: Job) -> None:
    with job.start(6, program(ending.tidies_up, int(signal.SIGINT)), "--verbose", "-H", THREE) as process:
        job.wait_known(process, 6)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        status, out, _ = job.finish(process)
    expect_within(PROMISED_S, time.monotonic() - started)
    assert status == 130
    assert out.count("tidied up") == 6
