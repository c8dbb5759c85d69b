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
from roundelay import _launch

FOLDER = ROOT / "examples" / "launch"
# What the operators' definitions (CustomResourceDefinitions) know of a job and of its replicas.
JOB_FIELDS = {
    "MPIJob": {
        "slotsPerWorker", "runLauncherAsWorker", "launcherCreationPolicy", "sshAuthMountPath", "runPolicy",
        "mpiImplementation", "mpiReplicaSpecs",
    },
    "PyTorchJob": {"runPolicy", "elasticPolicy", "nprocPerNode", "pytorchReplicaSpecs"},
}  # fmt: skip
REPLICA_FIELDS = {"replicas", "restartPolicy", "template"}
CONTAINER_FIELDS = {"name", "image", "command", "args", "env", "resources"}


def job(file: str, kind: str, version: str) -> dict[str, Any]:
    """The job's specification, of known fields only."""
    read = yaml.safe_load((FOLDER / file).read_text())
    assert (read["kind"], read["apiVersion"]) == (kind, version)
    assert set(read) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(read["spec"]) <= JOB_FIELDS[kind]
    spec: dict[str, Any] = read["spec"]
    return spec


def containers(replicas: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The one container of each kind of replica."""
    found = {}
    for name, replica in replicas.items():
        assert set(replica) <= REPLICA_FIELDS
        (found[name],) = replica["template"]["spec"]["containers"]
        assert set(found[name]) <= CONTAINER_FIELDS
        assert all(isinstance(word, str) for word in words(found[name]))
    return found


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


def test_torchrun() -> None:
    output = train([str(FOLDER / "torchrun.sh")], PORT="0")
    assert "2 processes" in output


def test_mpi_job() -> None:
    """The command starts so many ranks; here each only says that it was started."""
    spec = job("mpijob.yaml", "MPIJob", "kubeflow.org/v2beta1")
    launcher = containers(spec["mpiReplicaSpecs"])["Launcher"]
    command = words(launcher)
    ranks = int(command[command.index("-np") + 1])
    assert ranks == spec["slotsPerWorker"] * spec["mpiReplicaSpecs"]["Worker"]["replicas"]
    program = command.index("python")
    assert (ROOT / command[program + 1]).is_file()
    if mpirun() is None:
        pytest.skip("no mpirun")
    more = {one["name"]: one["value"] for one in launcher["env"]}
    status, output = starts.run(
        [command[0], "--oversubscribe", *command[1:program], "echo", "started"], **more
    )
    assert status == 0, output
    assert output.count("started") == ranks


def test_pytorch_job() -> None:
    """With what the operator sets in the pods, their ranks meet in the first one's store."""
    spec = job("pytorchjob.yaml", "PyTorchJob", "kubeflow.org/v1")
    replicas = spec["pytorchReplicaSpecs"]
    assert set(replicas) == {"Master", "Worker"}
    assert replicas["Master"]["replicas"] == 1
    for pod in containers(replicas).values():
        assert pod["name"] == "pytorch"  # others get no variables
        assert words(pod)[0] == "python"  # one rank a pod
        assert (ROOT / words(pod)[1]).is_file()
    size = sum(one["replicas"] for one in replicas.values())
    job_wide = {"WORLD_SIZE": str(size), "MASTER_ADDR": "train-master-0", "MASTER_PORT": "23456"}
    for rank in range(size):
        launch = _launch.detect({**job_wide, "RANK": str(rank), "PYTHONUNBUFFERED": "1"})
        assert launch.bootstrap == "store"
        meet = launch.rendezvous
        assert meet is not None
        assert (meet.rank, meet.size, meet.serve) == (rank, size, rank == 0)
        assert (meet.host, meet.port) == ("train-master-0", 23456)
