"""Elastic jobs of real processes: ranks die, come and leave, and each step counts exactly once."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from elastic_jobs import MOST_S, PROGRAMS, TRAINING, began, check_ended, ended_well, job, run, said
from hosts_here import local_ssh
from in_time import wait_until
from technique_libraries import CYCLIC

HOROVODS_SCRIPT = """
import json
import torch
import horovod.torch as hvd
from horovod.torch.elastic import ElasticSampler, TorchState

hvd.init()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

@hvd.elastic.run
def train(state):
    for state.batch in range(state.batch, 4):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        state.commit()
    state.batch += 1

state = TorchState(model, optimizer, batch=0, sampler=ElasticSampler(range(8)))
state.register_reset_callbacks([lambda: None])
train(state)
print(json.dumps({"batch": state.batch}), flush=True)
"""


@pytest.mark.parametrize("lost", ["0", "1,2"])
def test_lost_ranks_are_replaced(lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("-np", "4", "--min-np", "2", "--max-np", "4")
    monkeypatch.setenv("ROUNDELAY_FACTORS", "2,2")  # fits four ranks alone
    # The replacements may join one after the other.
    status, lines, err = run(*flags, program=[TRAINING, str(tmp_path), "2", f"kill:{lost}"])
    assert status == 0, err
    assert err.count("has failed: killed by SIGKILL") == len(lost.split(","))
    assert "left out, as the ranks have changed: ROUNDELAY_FACTORS=2,2 does not fit" in err
    last = max(line["size"] for line in lines if "done" in line)
    check_ended(lines, last)
    first = {line["pid"] for line in lines if line.get("generation") == 0}
    ended = {line["pid"] for line in lines if "done" in line}
    assert len(first & ended) == 4 - len(lost.split(","))  # the same processes


def test_a_change_of_ranks_loses_no_gradients_that_were_kept_back(tmp_path: Path) -> None:
    program = [str(PROGRAMS / "elastic_residuals.py"), str(tmp_path), "1", f"{CYCLIC}:parts=3"]
    out, err = ended_well("-np", "3", "--min-np", "2", "--max-np", "3", program=program)
    assert out.count("nothing is lost with 3 ranks") == 3
    for strategy in ("topk:", "csc:", "power_sgd:", "cyclic@"):
        lost = [line for line in err.splitlines() if f"strategy {strategy}" in line]
        assert len(lost) == 1, err
        assert lost[0].endswith("of the last generation have kept back of their gradients is lost: 1")


@pytest.mark.parametrize(
    "strategy",
    [
        "local_sgd:period=3,within_node=period",
        pytest.param("local_sgd:period=3", marks=pytest.mark.nightly),
        pytest.param("local_sgd:period=3,post_local_after=8", marks=pytest.mark.nightly),
        pytest.param("daso:total_epochs=2,warmup_epochs=0,cooldown_epochs=0", marks=pytest.mark.nightly),
    ],
)
def test_strategies_that_average_weights_go_on(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "within_node" not in strategy:
        monkeypatch.setenv("NODE_EACH", "1")
    program = [str(PROGRAMS / "elastic_averaging.py"), str(tmp_path), strategy, "1"]
    out, _ = ended_well("-np", "3", "--min-np", "2", "--max-np", "3", program=program)
    assert out.count("averaged with 3 ranks") == 3


def test_the_node_that_is_left_averages_gradients(tmp_path: Path) -> None:
    flags = ("-np", "3", "--min-np", "2", "--max-np", "3", "--blacklist-cooldown-range", "60", "60")
    status, lines, err = run(*flags, program=[str(PROGRAMS / "elastic_one_node.py"), str(tmp_path)])
    assert status == 0, err
    assert [line["equal"] for line in lines] == [True] * 2


@pytest.mark.nightly
def test_an_epoch_has_each_sample_once(tmp_path: Path) -> None:
    program = [str(PROGRAMS / "elastic_data.py"), str(tmp_path)]
    out, _ = ended_well("-np", "3", "--min-np", "2", "--max-np", "3", program=program)
    assert out.count("each sample was drawn once, with 3 ranks") == 3


@pytest.mark.nightly
def test_an_optimizer_of_a_process_set_goes_on(tmp_path: Path) -> None:
    program = [str(PROGRAMS / "elastic_sets.py"), str(tmp_path)]
    out, _ = ended_well("-np", "3", "--min-np", "2", "--max-np", "3", program=program)
    assert out.count("two optimizers with 3 ranks") == 3
    assert out.count("the set of a list has ended") == 2  # on the ranks that were there before


def test_ranks_that_had_other_weights_are_named(tmp_path: Path) -> None:
    program = [str(PROGRAMS / "elastic_faults.py"), str(tmp_path), "diverged"]
    out, err = ended_well("-np", "3", "--min-np", "2", "--max-np", "3", program=program)
    assert out.count("ended well") == 3
    warning = (
        "rank 1 had other values of parameter 'bias' than rank 0 at the newest commit (1 of the 2 parameters"
    )
    assert err.count(warning) == 1, err  # not at the second change: all had the same then


def test_a_newcomer_that_alone_adds_a_set_fails_and_the_others_go_on(tmp_path: Path) -> None:
    program = [str(PROGRAMS / "elastic_faults.py"), str(tmp_path), "set"]
    out, err = ended_well("-np", "3", "--min-np", "2", "--max-np", "3", program=program)
    assert re.search(r"rank [01] has no further process set, rank 2 has process set \[0, 1\]", out + err)
    assert out.count("ended well") == 2


def test_too_few_ranks_wait_for_a_replacement(tmp_path: Path) -> None:
    status, lines, err = run("-np", "2", "--min-np", "2", program=[TRAINING, str(tmp_path), "1", "kill:0"])
    assert status == 0, err
    check_ended(lines, 2)
    assert all(line["size"] == 2 for line in lines)


def test_hosts_that_a_script_prints_come_and_leave(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:1\n")
    flags = ("--min-np", "1", "-np", "1", "--max-np", "2", "--host-discovery-script", f"cat {hosts}")
    with job(*flags, program=[TRAINING, str(tmp_path), "2"]) as process:
        wait_until(lambda: bool(began(tmp_path, ranks=1)), MOST_S, "it did not begin")
        hosts.write_text("localhost:2\n")
        wait_until(lambda: bool(began(tmp_path, ranks=2, generation=1)), MOST_S, "it did not begin")
        hosts.write_text("localhost:1\n")
        out, err = process.communicate(timeout=MOST_S)
    assert process.returncode == 0, err
    check_ended(said(out), 1)
    assert {line["size"] for line in said(out)} == {1, 2}
    assert "has failed" not in err  # who leaves ends well


STAGES = [
    f"{stage}:{worker}:{generation}"
    for stage in ("asked", "placed", "meeting", "sync")
    for worker in (0, 1)
    for generation in (1, 2)
]


@pytest.mark.parametrize(
    "event",
    [event if event == "meeting:0:2" else pytest.param(event, marks=pytest.mark.nightly) for event in STAGES],
)
def test_a_rank_may_die_at_each_stage_of_a_change(
    event: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUNDELAY_START_TIMEOUT", str(10 * MOST_S))  # nobody waits for it
    monkeypatch.setenv("ROUNDELAY_TIMELINE", str(tmp_path / "job.json"))
    resets = "1" if event.endswith(":2") else "0"
    status, lines, err = run("-np", "4", "--min-np", "2", program=[TRAINING, str(tmp_path), resets, event])
    assert status == 0, err
    check_ended(lines, max(line["size"] for line in lines if "done" in line))
    assert err.count("has failed: killed by SIGKILL") == int(event[-1])
    if event == "meeting:0:2":
        check_shown(lines, tmp_path)


def check_shown(lines: list[dict[str, Any]], folder: Path) -> None:
    """Workers 3 and 0 have left before generation 3: its timeline and the stats of the others show it."""
    last = [line for line in lines if "done" in line]
    assert [(line["stats"]["generation"], line["stats"]["workers_left"]) for line in last] == [(3, 2)] * 2
    stages = [f"reset_{stage}_ns" for stage in ("restore", "place", "init", "sync")]
    assert all(line["stats"][stage] > 0 for line in last for stage in stages)
    files = {file.name: file.read_text() for file in folder.glob("job*.json")}
    shown = [name for name, text in files.items() if '"generation 3; left: 0, 3; restore ' in text]
    assert shown == ["job.3.json"]


def test_a_newcomer_with_another_script_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    script, messages = tmp_path / "train.py", tmp_path / "messages"
    original = Path(TRAINING).read_text()
    script.write_text(original)
    flags = ("--min-np", "1", "-np", "2", "--max-np", "2", "--blacklist-cooldown-range", "1", "1")
    with (
        messages.open("w") as err,
        job(*flags, program=[str(script), str(tmp_path), "2"], err=err) as process,
    ):
        wait_until(lambda: bool(began(tmp_path, ranks=2)), MOST_S, "it did not begin")
        script.write_text(original + "# edited\n")
        os.kill(began(tmp_path, ranks=2)[1], signal.SIGKILL)
        wait_until(lambda: "cannot join" in messages.read_text(), MOST_S, "it was not refused")
        script.write_text(original)
        out, _ = process.communicate(timeout=MOST_S)
    assert process.returncode == 0, messages.read_text()
    check_ended(said(out), 2)
    refused = next(line for line in messages.read_text().splitlines() if "cannot join" in line)
    assert re.search(r"the script is train.py \(SHA-256 \w+\) here, and train.py .* at worker [01]$", refused)


def test_several_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{local_ssh(tmp_path)}:{os.environ['PATH']}")
    flags = ("-np", "3", "--min-np", "2", "-H", "localhost:2,127.0.2.2:1")
    status, lines, err = run(*flags, program=[TRAINING, str(tmp_path), "2", "kill:2"])
    assert status == 0, err
    check_ended(lines, 3)


def test_hosts_that_cannot_be_reached_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{local_ssh(tmp_path)}:{os.environ['PATH']}")
    flags = ("--min-np", "2", "--elastic-timeout", "1", "-H", "localhost:1,127.0.9.2:1")
    status, _, err = run(*flags, program=[TRAINING, str(tmp_path), "0"])
    assert status == 1
    assert "127.0.9.2 cannot start a rank: ssh: connect to host 127.0.9.2 port 22: No route to host" in err
    assert "of at least 2 ranks (--min-np) were there within 1 s" in err.splitlines()[-1]


def test_horovods_script_runs_unchanged() -> None:
    status, lines, err = run("-np", "2", "--min-np", "2", "--as-horovod", program=["-c", HOROVODS_SCRIPT])
    assert status == 0, err
    assert [line["batch"] for line in lines] == [4, 4]


def test_nothing_is_left_when_the_launcher_is_killed(tmp_path: Path) -> None:
    with job("--min-np", "2", program=[TRAINING, str(tmp_path), "1"]) as process:
        wait_until(lambda: bool(began(tmp_path, ranks=2)), MOST_S, "it did not begin")
        process.kill()
        process.communicate(timeout=MOST_S)
    pids = began(tmp_path, ranks=2)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), MOST_S, "a rank is left")


def test_a_bug_on_all_ranks_ends_the_job(tmp_path: Path) -> None:
    status, _, err = run("-np", "2", "--min-np", "1", program=[TRAINING, str(tmp_path), "1", "raise"])
    assert status == 1
    assert "ValueError: a bug in the program" in err
    assert "no worker is left that has the state of the training" in err.splitlines()[-1]


def test_a_rank_that_ends_early_ends_the_job(tmp_path: Path) -> None:
    status, _, err = run("-np", "2", "--min-np", "1", program=[TRAINING, str(tmp_path), "1", "leave"])
    assert status == 1
    assert "another rank's program has ended" in err


def test_the_ranks_change_so_often_at_most(tmp_path: Path) -> None:
    flags = ("-np", "3", "--min-np", "2", "--reset-limit", "0")
    status, _, err = run(*flags, program=[TRAINING, str(tmp_path), "1", "kill:1"])
    assert status != 0
    assert "--reset-limit 0" in err.splitlines()[-1]


def test_a_program_that_never_joins_ends_the_job() -> None:
    status, _, err = run("--min-np", "1", program=["-c", "raise SystemExit(3)"])
    assert status == 3
    assert "no host is left on which a worker could start" in err.splitlines()[-1]


def test_a_signal_ends_all(tmp_path: Path) -> None:
    with job("--min-np", "2", program=[TRAINING, str(tmp_path), "1"]) as process:
        wait_until(lambda: bool(began(tmp_path, ranks=2)), MOST_S, "it did not begin")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=MOST_S)
    assert process.returncode == 128 + signal.SIGTERM, err
    pids = began(tmp_path, ranks=2)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), MOST_S, "a rank is left")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--max-np", "2"], "give --min-np N"),
        (["--min-np", "3", "-np", "2"], "none may be less"),
        (["--min-np", "2", "--mpi"], "an MPI's job ends when it loses a rank"),
        (["--min-np", "2", "--mpi-args=-v"], "--mpi-args: an MPI's job ends when it loses a rank"),
        (["--min-np", "2", "--dry-run"], "--dry-run: no one line starts the ranks"),
        (["--min-np", "2", "-H", "localhost:1"], "the hosts have 1 slots"),
        (["--min-np", "1", "--host-discovery-script", "false"], "'false' failed: exit code 1"),
        (["--min-np", "1", "--host-discovery-script", "echo a:b"], "printed a bad host"),
        (["--min-np", "1", "--host-discovery-script", "echo a", "-H", "a"], "leave out -H"),
        (["--min-np", "0"], "at least 1"),
    ],
)
def test_wrong_flags_are_one_line(flags: list[str], words: str) -> None:
    status, _, err = run(*flags, program=["-c", "pass"])
    assert status == 2
    assert words in err
    assert len(err.splitlines()) == 1
