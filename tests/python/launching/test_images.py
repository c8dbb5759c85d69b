"""What examples/launch types is in the images, as the Dockerfiles tell: building needs an engine."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from launching import image
from ranks import ROOT

LAUNCH, DOCKER = ROOT / "examples" / "launch", ROOT / "docker"
DOCKERFILES = (DOCKER / "Dockerfile", DOCKER / "Dockerfile.cuda")
BUILD = re.compile(r"docker build -f (\S+) --target (\w+) -t ([\w-]+) \.")
# What the Dockerfiles' comments say to type: the image's name, its file and target.
IMAGES = {
    name: (ROOT / file, target)
    for dockerfile in DOCKERFILES
    for file, target, name in BUILD.findall(dockerfile.read_text())
}


def containers(file: str) -> list[tuple[image.Image, dict[str, Any]]]:
    """Each container of a job with its image, which is one of ours."""
    (specs,) = (
        value
        for key, value in yaml.safe_load((LAUNCH / file).read_text())["spec"].items()
        if key.endswith("ReplicaSpecs")
    )
    found = [one["template"]["spec"]["containers"][0] for one in specs.values()]
    return [(image.read(*IMAGES[one["image"]]), one) for one in found]


def settings(file: str) -> dict[str, str]:
    """The lines of a configuration of OpenSSH's."""
    lines = [line.split(maxsplit=1) for line in (DOCKER / file).read_text().splitlines()]
    return {words[0]: words[1] for words in lines if len(words) == 2 and words[0] != "#"}


def test_the_images_are_these() -> None:
    assert set(IMAGES) == {"roundelay", "roundelay-ssh", "roundelay-cuda"}


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_a_user_who_is_not_root_builds_and_owns_all(name: str) -> None:
    made = image.read(*IMAGES[name])
    assert made.user == "roundelay"
    assert ("roundelay", "make build") in made.ran
    as_root = " && ".join(command for user, command in made.ran if user == "root")
    assert re.search(rf"useradd --create-home --home-dir \S+ .*\b{made.user}\b", as_root)
    assert made.owners[str(made.folder)] == made.user
    assert f"--owner {made.user} --group {made.user} {made.folder}" in as_root
    assert {"g++", "make", "python3", "python3-dev", "python3-venv"} <= made.packages()
    assert made.program(made.command[0])
    assert made.program("python")
    assert made.program("torchrun")


def test_the_image_for_gpus_is_the_other_on_another_base() -> None:
    plain, cuda = (image.read(dockerfile, "train") for dockerfile in DOCKERFILES)
    assert (plain.ran, plain.path, plain.command) == (cuda.ran, cuda.path, cuda.command)
    # Its nvcc is of the version that `make cuda` compiles with.
    compiler = re.search(r"nvcc==(\d+)\.", (ROOT / "tools" / "requirements-cuda.txt").read_text())
    assert compiler
    assert re.match(rf"nvidia/cuda:{compiler[1]}\.[\d.]+-devel-", cuda.base)
    assert "Not tried" in DOCKERFILES[1].read_text()


@pytest.mark.parametrize("file", ["mpijob.yaml", "pytorchjob.yaml"])
def test_the_jobs_programs_and_files_are_in_the_image(file: str) -> None:
    for made, container in containers(file):
        words = [*container["command"], *container.get("args", [])]
        assert made.program(words[0]), words[0]
        if "python" in words:
            script = words[words.index("python") + 1]
            assert made.program("python")
            assert made.file(script), script
        if "-f" in words:
            assert made.file(words[words.index("-f") + 1])


@pytest.mark.parametrize("file", ["slurm.sbatch", "torchrun.sh"])
def test_the_scripts_programs_and_files_are_in_the_image(file: str) -> None:
    made = image.read(*IMAGES["roundelay"])
    text = (LAUNCH / file).read_text().replace("\\\n", " ")
    (line,) = (line for line in text.splitlines() if line.startswith(("srun ", "exec torchrun ")))
    words = shlex.split(line)
    program = next(word for word in words if word in ("python", "torchrun"))
    assert made.program(program)
    assert made.file(next(word for word in words if word.endswith(".py")))


def test_sshd_is_the_users_and_has_the_operators_keys() -> None:
    job = yaml.safe_load((LAUNCH / "mpijob.yaml").read_text())["spec"]
    server, client = settings("sshd_config"), settings("ssh_config")
    made = image.read(*IMAGES["roundelay-ssh"])
    keys = job["sshAuthMountPath"]
    assert any(f"--home-dir {keys.removesuffix('/.ssh')} " in command for _, command in made.ran)
    assert (server["HostKey"], server["AuthorizedKeysFile"]) == (f"{keys}/id_rsa", f"{keys}/authorized_keys")
    worker = job["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert made.command == [*worker["command"], *worker["args"]]
    assert server["Port"] == client["Port"] == str(worker["readinessProbe"]["tcpSocket"]["port"])
    assert int(server["Port"]) >= 1024  # others are root's
    assert server["SetEnv"] == f"PATH={made.path}"
    assert made.files["/etc/ssh/ssh_config.d/roundelay.conf"] == DOCKER / "ssh_config"


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    """Each part of the model says no."""
    text = DOCKERFILES[0].read_text()

    def changed(old: str, new: str) -> image.Image:
        assert old in text
        (tmp_path / "Dockerfile").write_text(text.replace(old, new))
        return image.read(tmp_path / "Dockerfile", "ssh")

    assert changed("ENV PATH=/roundelay/.venv/bin:$PATH\n", "").program("mpirun") is None
    assert changed("RUN make build\n", "").program("python") is None
    assert changed(" openssh-server", "").program("/usr/sbin/sshd") is None
    assert changed("WORKDIR /roundelay\n", "WORKDIR /elsewhere\n").program("python") is None
    assert image.read(*IMAGES["roundelay"]).file("examples/no_such.py") is None
