"""What examples/launch types is true as far as it can be here: fields, variables and commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import starts
from ranks import ROOT, mpirun

pytestmark = pytest.mark.slow

FOLDER = ROOT / "examples" / "launch"
# As sshd would: the command gets sshd's variables, not those of mpirun's side.
SSH = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
echo "$1" >>{folder}/hosts
shift
exec env -i HOME=$HOME PATH={path} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 sh -c "$*"
"""


def job(file: str) -> dict[str, Any]:
    """The job's specification."""
    spec: dict[str, Any] = yaml.safe_load((FOLDER / file).read_text())["spec"]
    return spec


def container(replica: dict[str, Any]) -> dict[str, Any]:
    """The one container of a kind of replica."""
    (found,) = replica["template"]["spec"]["containers"]
    return dict(found)


def words(container: dict[str, Any]) -> list[str]:
    return [*container["command"], *container.get("args", [])]


def train(command: list[str], **more: str) -> str:
    """What one epoch says."""
    status, output = starts.run([*command, "--epochs", "1"], **more)
    assert status == 0, output
    return output


@pytest.mark.parametrize("script", ["slurm.sbatch", "torchrun.sh"])
def test_shell_scripts_parse(script: str) -> None:
    subprocess.run(["bash", "-n", str(FOLDER / script)], check=True)


@pytest.mark.nightly
def test_slurm(tmp_path: Path) -> None:
    """As sbatch would, on one host with two tasks: options in the header become variables."""
    script = FOLDER / "slurm.sbatch"
    options = [line.split()[1] for line in script.read_text().splitlines() if line.startswith("#SBATCH ")]
    assert all(option.startswith("--") and "=" in option for option in options)
    (tmp_path / "srun").write_text(
        f'#!/bin/sh\nexec {sys.executable} {Path(__file__).parent / "srun.py"} "$@"\n'
    )
    (tmp_path / "srun").chmod(0o755)
    path = os.pathsep.join([str(tmp_path), starts.environment()["PATH"]])
    output = train(["bash", str(script)], PATH=path, SLURM_JOB_ID="77", SLURM_NTASKS="2")
    assert "2 processes" in output


@pytest.mark.nightly
def test_torchrun() -> None:
    output = train([str(FOLDER / "torchrun.sh")], PORT="0")
    assert "2 processes" in output


def test_mpi_job(tmp_path: Path) -> None:
    """The launcher's command, with the operator's host file and an ssh that stays here, fills every pod."""
    if mpirun() is None:
        pytest.skip("no mpirun")
    spec = job("mpijob.yaml")
    launcher = container(spec["mpiReplicaSpecs"]["Launcher"])
    pods = [
        f"train-worker-{n}.train.default.svc" for n in range(spec["mpiReplicaSpecs"]["Worker"]["replicas"])
    ]
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("".join(f"{pod} slots={spec['slotsPerWorker']}\n" for pod in pods))
    path = starts.environment()["PATH"]
    (tmp_path / "ssh").write_text(SSH.format(folder=tmp_path, path=path))
    (tmp_path / "ssh").chmod(0o755)
    command = [str(hostfile) if word == "/etc/mpi/hostfile" else word for word in words(launcher)]
    assert str(hostfile) in command  # Open MPI 5 does not look where the operator's variable points
    program = command.index("python")
    say = "import os; print('rank', os.environ['OMPI_COMM_WORLD_RANK'], os.environ['OMP_NUM_THREADS'])"
    status, output = starts.run(
        [*command[:program], "python", "-c", say],
        **{one["name"]: one["value"] for one in launcher["env"]},
        PATH=os.pathsep.join([str(tmp_path), path]),
        OMPI_ALLOW_RUN_AS_ROOT="1",  # the image's user is not root, but tests may be
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )
    assert status == 0, output
    ranks = range(spec["slotsPerWorker"] * len(pods))
    said = [line for line in output.splitlines() if line.startswith("rank ")]
    assert sorted(said) == sorted(f"rank {rank} 1" for rank in ranks), output
    assert sorted((tmp_path / "hosts").read_text().split()) == pods


def test_pytorch_job() -> None:
    """The pods' commands, with what the operator sets in each, train as one job."""
    replicas = job("pytorchjob.yaml")["pytorchReplicaSpecs"]
    assert list(replicas) == ["Master", "Worker"]  # the operator numbers them so
    pods = [container(one) for one in replicas.values() for _ in range(one["replicas"])]
    assert {pod["name"] for pod in pods} == {"pytorch"}  # others get no variables
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": starts.free_port(), "WORLD_SIZE": str(len(pods))}
    ended = starts.run_all(
        [([*words(pod), "--epochs", "1"], {**meet, "RANK": str(rank)}) for rank, pod in enumerate(pods)]
    )
    for status, output in ended:
        assert status == 0, output
    assert f"{len(pods)} processes" in ended[0][1]
