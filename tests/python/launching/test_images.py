"""What examples/launch and the Dockerfiles say of each other. Building the images needs an engine."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from ranks import ROOT

LAUNCH, DOCKER = ROOT / "examples" / "launch", ROOT / "docker"
PLAIN, CUDA = ((DOCKER / file).read_text() for file in ("Dockerfile", "Dockerfile.cuda"))


def stages(dockerfile: str) -> dict[str, str]:
    """The instructions of each stage, by its name."""
    _, *parts = re.split(r"^FROM \S+ AS (\w+)\n", dockerfile, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def containers(file: str) -> dict[str, dict[str, Any]]:
    """The container of each kind of a job's replicas."""
    spec = yaml.safe_load((LAUNCH / file).read_text())["spec"]
    (replicas,) = (value for key, value in spec.items() if key.endswith("ReplicaSpecs"))
    return {kind: one["template"]["spec"]["containers"][0] for kind, one in replicas.items()}


def settings(file: str) -> dict[str, str]:
    """The lines of a configuration of OpenSSH's."""
    lines = [line.split(maxsplit=1) for line in (DOCKER / file).read_text().splitlines()]
    return {words[0]: words[1] for words in lines if len(words) == 2 and words[0] != "#"}


def test_the_jobs_use_images_that_the_comments_build() -> None:
    built = re.findall(r"docker build -f docker/(\S+) --target (\w+) -t ([\w-]+) \.", PLAIN + CUDA)
    used = {one["image"] for file in LAUNCH.glob("*.yaml") for one in containers(file.name).values()}
    assert used == {"roundelay", "roundelay-ssh"} < {name for _, _, name in built}
    for file, target, _ in built:
        assert target in stages((DOCKER / file).read_text())


def test_the_image_for_gpus_is_the_other_on_another_base() -> None:
    assert stages(CUDA)["train"].strip() == stages(PLAIN)["train"].strip()
    # Its nvcc is of the version that `make cuda` compiles with.
    compiler = re.search(r"nvcc==(\d+)\.", (ROOT / "tools" / "requirements-cuda.txt").read_text())
    assert compiler
    assert f"\nFROM nvidia/cuda:{compiler[1]}." in CUDA


def test_sshd_is_the_users_and_has_the_operators_keys() -> None:
    spec = yaml.safe_load((LAUNCH / "mpijob.yaml").read_text())["spec"]
    worker = containers("mpijob.yaml")["Worker"]
    server, client, instructions = settings("sshd_config"), settings("ssh_config"), stages(PLAIN)
    keys = spec["sshAuthMountPath"]
    assert f"--home-dir {keys.removesuffix('/.ssh')} " in instructions["train"]
    assert (server["HostKey"], server["AuthorizedKeysFile"]) == (f"{keys}/id_rsa", f"{keys}/authorized_keys")
    command = instructions["ssh"].rpartition("CMD ")[2]
    assert json.loads(command) == [*worker["command"], *worker["args"]]
    assert f"COPY docker/sshd_config {worker['args'][-1]}\n" in instructions["ssh"]
    assert server["Port"] == client["Port"] == str(worker["readinessProbe"]["tcpSocket"]["port"])
    assert int(server["Port"]) >= 1024  # others are root's
    (path,) = re.findall(r"^ENV PATH=(\S+):\$PATH$", instructions["train"], flags=re.MULTILINE)
    assert server["SetEnv"].startswith(f"PATH={path}:")
