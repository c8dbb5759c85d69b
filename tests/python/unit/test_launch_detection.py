"""Who started a process, as its environment tells: every launcher, and environments that make no sense."""

from __future__ import annotations

import pytest

from roundelay._internal import launch_detection

TORCH = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
}
TORCHRUN = {
    **TORCH,
    "TORCHELASTIC_RUN_ID": "job7",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
SBATCH = {"SLURM_JOB_ID": "17", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "gpu[1-2]"}
SRUN = {
    **SBATCH,
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_ID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "gpu[007-008],login",
}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1"}

CHOSEN = {
    "nothing": ({}, "single"),
    "an address that some shells export": ({"MASTER_ADDR": "node1", "MASTER_PORT": "1"}, "single"),
    "torchrun": (TORCHRUN, "store"),
    "variables set by hand": (TORCH, "store"),
    "torchrun with one rank": ({**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"}, "single"),
    "one rank by hand, without an address": ({"RANK": "0", "WORLD_SIZE": "1"}, "single"),
    "the script of sbatch": (SBATCH, "single"),
    "srun": (SRUN, "store"),
    "srun with one task": ({**SRUN, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, "single"),
    "srun --mpi=pmix": ({**SRUN, "PMIX_RANK": "2"}, "mpi"),
    "srun that starts torchrun": ({**SRUN, **TORCHRUN}, "store"),
    "Open MPI": (OPEN_MPI, "mpi"),
    "Open MPI that starts its daemons by srun": ({**SRUN, **OPEN_MPI}, "mpi"),
    "MPICH": ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}, "mpi"),
    "MPI's numbers copied for torch": ({**OPEN_MPI, "RANK": "1", "WORLD_SIZE": "4"}, "mpi"),
}

WRONG = {
    "RANK alone": ({"RANK": "0"}, "RANK is set, but WORLD_SIZE is not"),
    "WORLD_SIZE alone": ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set, but RANK is not"),
    "nowhere to meet": ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR and MASTER_PORT not"),
    "no port": ({**TORCH, "MASTER_PORT": ""}, "set, but MASTER_PORT not"),
    "no number": ({**TORCH, "RANK": "one"}, "RANK='one' is not valid"),
    "a negative number": ({**TORCH, "RANK": "-1"}, "RANK='-1' is not valid"),
    "digits of another script": ({**TORCH, "RANK": "\u0663"}, "is not valid"),
    "a rank too many": ({**TORCH, "RANK": "4"}, "RANK=4 and WORLD_SIZE=4: ranks count from 0 to 3"),
    "no such port": ({**TORCH, "MASTER_PORT": "65536"}, "MASTER_PORT='65536' is not valid"),
    "torchrun inside of mpirun": ({**OPEN_MPI, **TORCHRUN}, "OMPI_COMM_WORLD_RANK=1 .* RANK=3"),
    "sizes that differ": (
        {**OPEN_MPI, "RANK": "1", "WORLD_SIZE": "8"},
        "OMPI_COMM_WORLD_SIZE=4 .* WORLD_SIZE=8",
    ),
    "half a step": ({**SRUN, "SLURM_STEP_ID": "x"}, "SLURM_STEP_ID='x' is not valid"),
    "a step without a number": (
        {name: value for name, value in SRUN.items() if name != "SLURM_STEP_ID"},
        "SLURM_STEP_NODELIST is set, but SLURM_STEP_ID not",
    ),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_launcher_is_recognised(name: str) -> None:
    environment, expected = CHOSEN[name]
    launch = launch_detection.detect(environment)
    assert launch.bootstrap == expected, launch.why
    assert (launch.rendezvous is not None) == (expected == "store")


@pytest.mark.parametrize("name", WRONG)
def test_an_environment_without_sense_is_one_line(name: str) -> None:
    environment, message = WRONG[name]
    with pytest.raises(RuntimeError, match=message) as raised:
        launch_detection.detect(environment)
    assert "\n" not in str(raised.value)


def test_a_bootstrap_that_is_asked_for_wins() -> None:
    both = {**OPEN_MPI, **TORCHRUN}
    assert launch_detection.detect(both, "mpi").bootstrap == "mpi"
    assert launch_detection.detect(both, "store").bootstrap == "store"
    assert launch_detection.detect(both, "single").bootstrap == "single"
    assert launch_detection.detect({**TORCH, "RANK": "0", "WORLD_SIZE": "1"}, "store").bootstrap == "store"
    with pytest.raises(RuntimeError, match="ROUNDELAY_BOOTSTRAP=store needs RANK"):
        launch_detection.detect(OPEN_MPI, "store")


@pytest.mark.parametrize(
    ("address", "kinds", "expected"),
    [
        ("s0.s4.n12", "switch.switch.node", "s0/s4"),
        ("s[1-2].n12", "switch.node", "s[1-2]"),
        ("n12", "node", ""),
        ("s0.n12.cluster.org", "switch.node", ""),
        ("s0.s4", "switch.switch", ""),
        ("", "", ""),
    ],
)
def test_the_rack_that_slurm_states(address: str, kinds: str, expected: str) -> None:
    stated = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": kinds}
    assert launch_detection.rack({**SRUN, **stated}) == expected
    assert launch_detection.rack({**SBATCH, **stated}) == ""
    assert launch_detection.rack(SRUN) == ""


def test_where_ranks_meet() -> None:
    def meet(**changes: str) -> launch_detection.Rendezvous:
        found = launch_detection.detect({**TORCHRUN, **changes}).rendezvous
        assert found is not None
        return found

    third = meet()
    assert (third.rank, third.size, third.host, third.port) == (3, 4, "node1", 29500)
    assert (third.local_rank, third.local_size, third.listener) == (1, 2, None)
    assert not third.serve
    assert not meet(RANK="0").serve  # torchrun's agent does
    assert meet(RANK="0", TORCHELASTIC_USE_AGENT_STORE="False").serve
    jobs = {meet().job, meet(TORCHELASTIC_RUN_ID="job8").job, meet(TORCHELASTIC_RESTART_COUNT="3").job}
    assert len(jobs) == 3


def test_where_the_tasks_of_a_step_meet() -> None:
    found = [launch_detection.detect({**SRUN, "SLURM_PROCID": str(rank)}).rendezvous for rank in range(4)]
    assert {(one.host, one.port, one.job) for one in found if one} == {("gpu007", 15120, "slurm.17.1/0/4")}
    assert [one.serve for one in found if one] == [True, False, False, False]
    other = launch_detection.detect({**SRUN, "SLURM_STEP_ID": "2"}).rendezvous
    assert other is not None
    assert other.port != 15120


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("gpu[007-010,12],login", "gpu007"),
        ("gpu[3,5]", "gpu3"),
        ("rack[1-2]node[05-06]", "rack1node05"),
        ("a-b[1]-c.example.org,x", "a-b1-c.example.org"),
    ],
)
def test_the_first_host_of_a_list(nodes: str, first: str) -> None:
    assert launch_detection.first_host(nodes) == first


@pytest.mark.parametrize(
    ("changed", "port", "listener"),
    [({}, 4001, 5), ({"MASTER_PORT": "29501"}, 29501, None), ({"MASTER_ADDR": "node2"}, 29500, None)],
)
def test_roundelayruns_own_store_leaves_the_master_port_free(
    changed: dict[str, str], port: int, listener: int | None
) -> None:
    """Another launcher within the job sets the master's address anew; the store's variable stays."""
    own = {"ROUNDELAY_RUN_STORE": "node1 4001 29500", "ROUNDELAY_RUN_LISTENER": "5"}
    meeting = launch_detection.detect({**TORCH, "RANK": "0", **own, **changed}).rendezvous
    assert meeting is not None
    assert (meeting.port, meeting.listener) == (port, listener)
