"""The job's levels, as ranks that take themselves for nodes and racks find and print them."""

from __future__ import annotations

import shlex

import pytest

import roundelay.torch as hvd
from ranks import CHECKS, launch, launch_without_mpi, mpirun
from roundelay.torch._internal.topology import Level, Part
from starts import ROUNDELAYRUN, run

pytestmark = pytest.mark.slow

COMMAND = shlex.join([*CHECKS, __file__])
# Prints the error on each rank, in one write.
WRONG = """
import os
import torch
from roundelay import _core
import roundelay.torch as hvd
try:
    hvd.init()
except ValueError as error:
    os.write(1, f"refused: {error}\\n".encode())
"""


def check_the_levels() -> None:
    """Four ranks: rank 0 is a node, ranks 1 and 2 are one; these are in one rack, rank 3 is in another."""
    nodes, racks = hvd.topology().levels
    assert nodes == Level("node", (Part("n0", (0,)), Part("n1", (1, 2)), Part("n2", (3,))))
    assert [(part.name, part.ranks) for part in racks.parts] in (
        [("a", (0, 1, 2)), ("b", (3,))],
        [("s1", (0, 1, 2)), ("s2", (3,))],
    )
    a, b = (part.name for part in racks.parts)
    assert str(hvd.topology()).splitlines() == [
        "4 ranks, 3 nodes, 2 racks",
        f"  rack {a}",
        "    node n0: rank 0",
        "    node n1: ranks 1, 2",
        f"  rack {b}",
        "    node n2: rank 3",
    ]


def in_racks(rank: str, fabric: str, racks: str) -> list[str]:
    """Returns the command that runs the checks on ranks in racks. Their fabric is flat."""
    node = f"ROUNDELAY_NODE_ID=n$(((${rank} + 1) / 2)) LOCAL_RANK=$((${rank} == 2)) ROUNDELAY_FABRIC={fabric}"
    return ["sh", "-c", f"{node} {racks} exec {COMMAND}"]


@pytest.mark.nightly
@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_racks_under_mpirun() -> None:
    rank = "OMPI_COMM_WORLD_RANK"
    ranks = launch(in_racks(rank, "mpi", f"ROUNDELAY_TOPOLOGY=$([ ${rank} = 3 ] && echo b || echo a)"), 4)
    assert ranks.output.count("all checks passed on rank ") == 4, ranks.output


def test_racks_that_slurm_states() -> None:
    step = "SLURM_STEP_NODELIST=x SLURM_PROCID=$RANK SLURM_TOPOLOGY_ADDR_PATTERN=switch.node"
    racks = f"{step} SLURM_TOPOLOGY_ADDR=s$((1 + (RANK == 3))).n"
    ranks = launch_without_mpi(in_racks("RANK", "c10d", racks), 4)
    assert ranks.output.count("all checks passed on rank ") == 4, ranks.output


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (
            "ROUNDELAY_TOPOLOGY=r$RANK",
            'rank 0 has ROUNDELAY_TOPOLOGY="r0", and rank 1 has ROUNDELAY_TOPOLOGY="r1", but both ranks are',
        ),
        (
            "ROUNDELAY_NODE_ID=$RANK LOCAL_RANK=0 ROUNDELAY_TOPOLOGY=rack=$((1 + RANK)),node=1",
            'has ROUNDELAY_TOPOLOGY="rack=1,node=1", and rank 1 has ROUNDELAY_TOPOLOGY="rack=2,node=1"',
        ),
    ],
)
def test_wrong_statements_are_one_error_on_all_ranks(variables: str, expected: str) -> None:
    words = ["sh", "-c", f'{variables} exec python -c "$0"', WRONG]
    status, output = run([*ROUNDELAYRUN, "-np", "2", "--gloo", *words])
    refused = [line.partition("refused: ")[2] for line in output.splitlines() if "refused: " in line]
    assert status == 0, output
    assert len(refused) == 2, output
    assert refused[0] == refused[1]
    assert expected in refused[0]


def test_malformed_counts_are_refused_before_a_rank_starts() -> None:
    status, output = run([*ROUNDELAYRUN, "-np", "2", "true"], ROUNDELAY_TOPOLOGY="node=4,rack=2")
    assert status != 0
    assert 'ROUNDELAY_TOPOLOGY="node=4,rack=2" is not valid' in output
