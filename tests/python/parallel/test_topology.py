"""The job's levels, as ranks that take themselves for nodes and racks find and print them."""

from __future__ import annotations

from pathlib import Path

import pytest

import roundelay.torch as hvd
from ranks import Check, mpirun, run_check
from roundelay.torch._internal.topology import Level, Part
from starts import ROUNDELAYRUN, run

pytestmark = pytest.mark.slow

REFUSED = Path(__file__).parents[1] / "support" / "refused_init.py"


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


def on_nodes(rank: str) -> str:
    """Returns the variables of ranks on three nodes. rank: the launcher's variable."""
    return f"ROUNDELAY_NODE_ID=n$(((${rank} + 1) / 2)) LOCAL_RANK=$((${rank} == 2))"


@pytest.mark.nightly
@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_racks_under_mpirun(check: Check) -> None:
    rank = "OMPI_COMM_WORLD_RANK"
    each = f"{on_nodes(rank)} ROUNDELAY_TOPOLOGY=$([ ${rank} = 3 ] && echo b || echo a)"
    run_check(check, 4, env={"ROUNDELAY_FABRIC": "mpi"}, each=each)  # the fabric is flat


def test_racks_that_slurm_states(check: Check) -> None:
    step = "SLURM_STEP_NODELIST=x SLURM_PROCID=$RANK SLURM_TOPOLOGY_ADDR_PATTERN=switch.node"
    each = f"{on_nodes('RANK')} {step} SLURM_TOPOLOGY_ADDR=s$((1 + (RANK == 3))).n"
    run_check(check, 4, env={"ROUNDELAY_FABRIC": "c10d"}, each=each, mpi=False)


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
    words = ["sh", "-c", f"{variables} exec python {REFUSED}"]
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
