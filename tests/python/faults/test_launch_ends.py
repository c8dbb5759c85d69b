"""Jobs that end badly, under mpirun and without MPI: status, last word, how soon; nothing is left over."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from in_time import expect_within, wait_until
from launch_job import LIMIT_S, PROMISED_S, Job
from programs import ending
from rank_program import Program, program


def test_success_shows_every_line_with_its_rank(job: Job) -> None:
    status, out, err = job.run(2, program(ending.says_hello), "--output-filename", str(job.folder / "out"))
    assert status == 0
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    assert sorted(out.splitlines()) == [f"[rank {rank}] hello {threads}" for rank in range(2)]
    assert sorted(line for line in err.splitlines() if line.startswith("[rank")) == [
        f"[rank {rank}] to stderr" for rank in range(2)
    ]
    assert (job.folder / "out" / "rank.1" / "stdout").read_text() == f"hello {threads}\n"


@pytest.mark.slow
def test_lines_of_several_ranks_are_never_mixed(job: Job) -> None:
    status, out, _ = job.run(3, program(ending.writes_3000_lines))
    assert status == 0
    for rank in range(3):
        mine = [line for line in out.splitlines() if line.startswith(f"[rank {rank}]")]
        assert mine == [f"[rank {rank}] {chr(97 + rank) * 37} {i}" for i in range(3000)]


@pytest.mark.slow
def test_verbose_says_what_runs_where(job: Job) -> None:
    status, _, err = job.run(2, program(ending.does_nothing), "--verbose")
    assert status == 0
    assert re.search(
        r"roundelayrun: .*mpirun .*-np 2" if job.way else r"roundelayrun: .*/single_host\.py 2", err
    )
    assert len(re.findall(r"roundelayrun: rank [01] is pid \d+ on \S+, OMP_NUM_THREADS=\d+", err)) == 2


def test_the_exit_code_of_the_rank_that_failed_first(job: Job) -> None:
    status, _, err = job.run(3, program(ending.exits_with_3, 1))
    expect_within(PROMISED_S, job.seconds_since_failure())
    assert status == 3
    assert re.search(r"roundelayrun: rank 1 \(pid \d+ on \S+\) failed first: exit code 3$", err.strip())


def test_a_rank_that_raises_has_the_last_word(job: Job) -> None:
    status, _, err = job.run(2, program(ending.raises))
    expect_within(PROMISED_S, job.seconds_since_failure())
    assert status == 1
    assert "[rank 0] ValueError: boom" in err
    last = err[err.index("roundelayrun: the last lines of rank 0 on stderr:") :].splitlines()
    assert last[-2] == "  ValueError: boom"
    assert re.fullmatch(
        r"roundelayrun: rank 0 \(pid \d+ on \S+\) failed first: exit code 1: ValueError: boom", last[-1]
    )


def test_a_rank_that_exits_with_a_message_has_the_last_word(job: Job) -> None:
    status, _, err = job.run(2, program(ending.exits_with_a_message))
    assert status == 1
    assert err.strip().endswith("failed first: exit code 1; its last line on stderr: no data")


def test_survivors_of_a_killed_rank_live_to_say_so(job: Job) -> None:
    status, out, err = job.run(3, program(ending.is_killed_and_others_tell, 2, "rank 2 was lost"))
    expect_within(PROMISED_S, job.seconds_since_failure())
    assert status == 137
    assert sorted(out.splitlines()) == ["[rank 0] rank 2 was lost", "[rank 1] rank 2 was lost"]
    assert re.search(
        r"rank 2 \(pid \d+ on \S+\) failed first: killed by SIGKILL \(signal 9\): .*dmesg",
        err.splitlines()[-1],
    )


@pytest.mark.slow
def test_survivors_that_hang_are_ended(job: Job) -> None:
    status, _, _ = job.run(2, program(ending.is_killed_and_others_hang))
    expect_within(PROMISED_S, job.seconds_since_failure())
    assert status == 137


def test_what_a_rank_started_ends_with_it(job: Job) -> None:
    status, _, _ = job.run(2, program(ending.starts_a_process))  # run() looks for what is left
    assert status == 0


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_signal_ends_all_ranks_in_order(job: Job, signum: int, status: int) -> None:
    with job.start(2, program(ending.tidies_up, int(signum)), "--verbose") as process:
        job.wait_known(process, 2)
        process.send_signal(signum)
        started = time.monotonic()
        got, out, err = job.finish(process)
    expect_within(PROMISED_S, time.monotonic() - started)
    assert got == status
    assert sorted(out.splitlines()) == ["[rank 0] tidied up", "[rank 1] tidied up"]
    assert (
        err.strip().splitlines()[-1]
        == f"roundelayrun: ended by {signal.Signals(signum).name}; no rank is left"
    )


STUBBORN = program(ending.tells_of_signals_and_sleeps)


def test_the_second_signal_ends_them_at_once(job: Job) -> None:
    with job.start(2, STUBBORN, "--verbose") as process:
        job.wait_known(process, 2)
        process.send_signal(signal.SIGINT)
        # Two signals at once would be one to a launcher that has not run since.
        wait_until(lambda: len(list(job.folder.glob("told.*"))) == 2, LIMIT_S, "the ranks were not told")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        status, _, _ = job.finish(process)
    expect_within(3.0, time.monotonic() - started)
    assert status == 130


@pytest.mark.slow
def test_ranks_that_ignore_the_signal_get_five_seconds(job: Job) -> None:
    with job.start(2, STUBBORN, "--verbose") as process:
        job.wait_known(process, 2)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        status, _, _ = job.finish(process)
    lived_s = time.monotonic() - started
    assert lived_s > 4.5
    expect_within(8.0, lived_s)
    assert status == 143


@pytest.mark.parametrize("ranks", [program(ending.sleeps), STUBBORN], ids=["plain", "stubborn"])
def test_nothing_outlives_a_killed_launcher(job: Job, ranks: Program) -> None:
    with job.start(2, ranks) as process:
        job.wait_ready(2)
        assert len(job.left()) >= 6  # the launcher, mpirun or the starter, two agents, two programs
        process.kill()
        job.expect_nothing_left(within_s=PROMISED_S)


def test_nothing_outlives_a_killed_agent(job: Job) -> None:
    with job.start(2, program(ending.sleeps)) as process:
        pids = job.wait_ready(2)
        agent = int(re.findall(r"PPid:\s+(\d+)", Path(f"/proc/{pids[1]}/status").read_text())[0])
        os.kill(agent, signal.SIGKILL)
        started = time.monotonic()
        status, _, err = job.finish(process)
    expect_within(PROMISED_S, time.monotonic() - started)
    assert status == 137
    assert "rank 1" in err


def test_a_closed_stdout_ends_the_job(job: Job) -> None:
    with job.start(2, program(ending.writes_without_end)) as process:
        job.wait_ready(2)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(LIMIT_S) == 128 + signal.SIGPIPE
        job.expect_nothing_left(within_s=0.5)


def test_a_rank_that_never_starts_is_named(tmp_path: Path) -> None:
    job = Job(tmp_path, way=("--mpi",))
    folder = job.folder / "bin"
    folder.mkdir()
    fake = folder / "mpirun"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "mpirun (Open MPI) 5.0.11" && exit\nexec sleep 60\n'
    )
    fake.chmod(0o755)
    job.bin = folder
    started = time.monotonic()
    status, _, err = job.run(2, program(ending.does_nothing), "--start-timeout", "1")
    expect_within(PROMISED_S, time.monotonic() - started)
    assert status == 1
    assert err.strip() == "roundelayrun: ranks 0, 1 did not start within 1 s (--start-timeout)"
