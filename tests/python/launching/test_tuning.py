"""`roundelay tune` on two hosts, and jobs that choose their algorithms by a tuning file."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest

import starts
from ranks import PROGRAMS
from roundelay.timeline import events
from roundelay.tuning import file as tuning_file
from roundelay.tuning.file import Choice, Cluster, Level, Tuning
from tests.rig import Rig, why_not

_REASON = why_not()
pytestmark = pytest.mark.slow

TUNING = Tuning(
    date="2026-01-02T03:04:05Z",
    roundelay="0.1.0",
    cluster=Cluster(2, 2, "tcp", (Level("cluster", 2),)),
    links=(),
    measured=(),
    table=(
        Choice("cluster", "allreduce", 2, 4096, "recursive_doubling"),
        Choice("cluster", "allreduce", 2, None, "halving_doubling"),
        Choice("cluster", "broadcast", 2, None, "pipelined_tree"),
    ),
)
# Ranks on nodes of their own, without MPI. Rank 1's tuning file is none.
ON_NODES = "ROUNDELAY_NODE_ID=$RANK LOCAL_RANK=0"
WORK = str(PROGRAMS / "tuned_operations.py")


def job(variables: str, *flags: str, **more: str) -> tuple[int, str]:
    words = ["sh", "-c", f'{variables} exec "$0" "$@"', sys.executable, WORK]
    return starts.run([*starts.ROUNDELAYRUN, "--gloo", "-np", "2", *flags, *words], **more)


def test_rank_0s_file_chooses_and_log_and_timeline_name_the_algorithms(tmp_path: Path) -> None:
    path, trace = tmp_path / "tuning.json", tmp_path / "trace.json"
    tuning_file.save(TUNING, path)
    flags = ["--tuning", str(path), "--log-level", "INFO", "--timeline-filename", str(trace)]
    other = f"{ON_NODES} ROUNDELAY_TUNING=$([ $RANK = 0 ] && echo $ROUNDELAY_TUNING || echo /nowhere)"
    status, output = job(other, *flags)
    assert status == 0, output
    for line in (
        "allreduce of 1024 bytes: algorithm recursive_doubling",
        "allreduce of 262144 bytes: algorithm halving_doubling",
        "broadcast of 400 bytes: algorithm pipelined_tree",
        "allgather of 400 bytes: algorithm pairwise",
    ):
        assert output.count(line) == 1, output  # rank 0 speaks for all
    named = {
        (event.name, event.args["bytes"]): event.args["algorithm"]
        for event in events.read(trace).events
        if "algorithm" in event.args and event.rank == 1
    }
    assert named["allreduce", 1024] == "recursive_doubling"
    assert named["broadcast", 400] == "pipelined_tree"

    pinned = job(other, *flags[:4], ROUNDELAY_DETERMINISTIC="1")[1]
    assert "allreduce of 1024 bytes: algorithm direct" in pinned, pinned
    assert "broadcast of 400 bytes: algorithm pipelined_tree" in pinned, pinned


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        (
            Cluster(2, 4, "mpi", (Level("cluster", 2),)),
            "was measured over fabric mpi, and this job uses tcp",
        ),
        (
            Cluster(1, 4, "tcp", (Level("node", 4),)),
            "is of another cluster: it was measured with 4 in a node, and this job has 2 in a cluster",
        ),
    ],
)
def test_another_clusters_file_is_one_error_on_all_ranks(tmp_path: Path, cluster: Cluster, why: str) -> None:
    path = tmp_path / "tuning.json"
    tuning_file.save(dataclasses.replace(TUNING, cluster=cluster, table=()), path)
    status, output = job(ON_NODES, "--tuning", str(path))
    assert status == 0, output
    cure = "; run roundelay tune on this cluster, or unset ROUNDELAY_TUNING"
    refused = [line for line in output.splitlines() if line.endswith(f"the tuning file {why}{cure}")]
    assert len(refused) == 2, output


def test_a_file_that_rank_0_cannot_use_is_one_error_on_all_ranks(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    path.write_text("{}")
    status, output = job(f"{ON_NODES} ROUNDELAY_TUNING={path}")
    assert status == 0, output
    text = f"init failed on rank 0: the tuning file '{path}' cannot be used: it is no tuning file"
    assert len([line for line in output.splitlines() if text in line]) == 2, output


def test_roundelayrun_refuses_a_file_before_it_starts_ranks(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    cure = f"write one with: roundelay tune -np N --output {path}"
    for flags, more in (["--tuning", str(path)], {}), ([], {"ROUNDELAY_TUNING": str(path)}):
        status, output = job("", *flags, **more)
        assert status == 2, output
        why = f"the tuning file '{path}' cannot be used: no such file or directory; {cure}"
        assert output == f"roundelayrun: error: {why}\n"


@pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}")
def test_a_newcomer_tunes_two_hosts_and_uses_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    roundelay = [sys.executable, "-m", "roundelay.cli"]
    with Rig(nodes=2, mbit=None) as rig:
        hosts = ["-H", f"{rig.host(0)}:1,{rig.host(1)}:1", "--gloo"]
        search = {"PATH": os.pathsep.join([str(rig.commands), starts.environment()["PATH"]])}
        measure = ["tune", *hosts, "--sizes", "1K", "64K", "--rounds", "1", "--output", str(path)]
        status, output = starts.run([*rig.on(0), *roundelay, *measure], **search)
        assert status == 0, output
        tuning = tuning_file.load(path)
        assert tuning.cluster == Cluster(2, 2, "tcp", (Level("cluster", 2),))
        assert {one.operation for one in tuning.table} == {
            "allreduce", "broadcast", "reducescatter", "allgather"
        }  # fmt: skip
        measured = {one.algorithm for one in tuning.measured if one.operation == "allreduce"}
        assert measured == set(tuning_file.ALGORITHMS["allreduce"])
        link = tuning.link("cluster")
        assert link is not None
        assert link.bandwidth > 0
        train = [
            *rig.on(0),
            *roundelay,
            "run",
            "-np",
            "2",
            *hosts,
            "--tuning",
            str(path),
            "--log-level",
            "INFO",
        ]
        status, output = starts.run([*train, sys.executable, WORK], **search)
        assert status == 0, output
        best = next(one for one in tuning.table if one.operation == "broadcast")
        assert f"broadcast of 400 bytes: algorithm {best.algorithm}" in output
