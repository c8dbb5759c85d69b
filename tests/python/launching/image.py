"""What a container image has, as far as its Dockerfile and this checkout tell: nothing is built."""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from string import Template

from dockerfile_parse import DockerfileParser

from ranks import ROOT

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Debian's packages -> the programs that they bring.
_PROGRAMS = {
    "make": "/usr/bin/make",
    "g++": "/usr/bin/g++",
    "openssh-client": "/usr/bin/ssh",
    "openssh-server": "/usr/sbin/sshd",
}


@dataclass(frozen=True)
class Image:
    """An image after a stage's last instruction."""

    base: str = ""
    user: str = "root"
    folder: PurePosixPath = field(default_factory=lambda: PurePosixPath("/"))
    path: str = _SYSTEM_PATH
    command: list[str] = field(default_factory=list)
    ran: list[tuple[str, str]] = field(default_factory=list)  # user, command
    files: dict[str, Path] = field(default_factory=dict)  # a copy's place in the image, and its source
    owners: dict[str, str] = field(default_factory=dict)  # of the copies

    def file(self, name: str) -> Path | None:
        """What stands for a file of the image, by its path or one below the working directory."""
        place = self.folder / name
        for copied, source in self.files.items():
            if not place.is_relative_to(copied):
                continue
            below = place.relative_to(copied)
            if below.parts[:2] == (".venv", "bin"):
                # .dockerignore leaves ours out; `make build` makes it as it made the one of this checkout.
                found = Path(sys.executable).parent / below.name
                return found if ("roundelay", "make build") in self.ran and found.exists() else None
            return source / below if (source / below).is_file() else None
        packages = {package for package, program in _PROGRAMS.items() if program == str(place)}
        return Path(place) if packages & self.packages() else None

    def program(self, name: str) -> Path | None:
        """What would be started as `name`."""
        if "/" in name:
            return self.file(name)
        return next(filter(None, (self.file(f"{folder}/{name}") for folder in self.path.split(":"))), None)

    def packages(self) -> set[str]:
        """What apt-get installs."""
        lists = re.findall(r"apt-get install ([^&]*)", " && ".join(command for _, command in self.ran))
        return {word for words in lists for word in words.split() if not word.startswith("-")}


def read(dockerfile: Path, target: str) -> Image:
    """The image of a target. Instructions that are not known here are a KeyError."""
    stages: dict[str, Image] = {}
    name = ""
    for step in DockerfileParser(fileobj=dockerfile.open("rb")).structure:
        kind, value = step["instruction"], step["value"]
        if kind == "COMMENT":
            continue
        if kind == "FROM":
            base, _, name = value.split()
            stages[name] = stages.get(base, Image(base=base))
            continue
        stages[name] = _STEPS[kind](stages[name], value)
    return stages[target]


def _copy(image: Image, value: str) -> Image:
    options = [word for word in value.split() if word.startswith("--")]
    source, to = (word for word in value.split() if not word.startswith("--"))
    place = str(image.folder / to)
    assert (ROOT / source).exists(), f"COPY {value}: there is no {source}"
    owners = [option.partition("=")[2].partition(":")[0] for option in options]
    return replace(
        image,
        files={**image.files, place: ROOT / source},
        owners={**image.owners, place: (owners or ["root"])[0]},
    )


def _environment(image: Image, value: str) -> Image:
    variables = dict(word.split("=", 1) for word in shlex.split(value))
    return replace(image, path=Template(variables.get("PATH", image.path)).substitute(PATH=image.path))


_STEPS = {
    "RUN": lambda image, value: replace(image, ran=[*image.ran, (image.user, value)]),
    "USER": lambda image, value: replace(image, user=value),
    "WORKDIR": lambda image, value: replace(image, folder=image.folder / value),
    "COPY": _copy,
    "ENV": _environment,
    "CMD": lambda image, value: replace(image, command=json.loads(value)),
    "EXPOSE": lambda image, _: image,
}
