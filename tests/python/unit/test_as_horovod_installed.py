"""An environment whose Horovod is Roundelay, made and undone by ``python -m roundelay.as_horovod``."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from ranks import PROGRAMS, ROOT

LIMIT_S = 240.0
SHOW = str(PROGRAMS / "horovod_that_is_installed.py")


class Environment:
    """A Python of its own, which sees this one's packages."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True, with_pip=False)
        (self.site,) = (folder / "lib").glob("python*/site-packages")
        here = [str(ROOT / "python"), *(path for path in sys.path if path.endswith("site-packages"))]
        (self.site / "packages.pth").write_text("\n".join(here) + "\n")
        self.bin = folder / "bin"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        kept = {
            name: text for name, text in os.environ.items() if not name.startswith(("ROUNDELAY", "PYTHON"))
        }
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            env=kept,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def change(self, how: str) -> subprocess.CompletedProcess[str]:
        return self.run("python", "-m", "roundelay.as_horovod", how)

    def files(self) -> set[str]:
        return {str(file) for folder in (self.site, self.bin) for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "environment")


def test_horovod_is_there_until_it_is_removed(environment: Environment, tmp_path: Path) -> None:
    before = environment.files()
    assert environment.run("python", SHOW).stdout.split() == ["none", "False"]
    for _ in range(2):  # a second time replaces the files of the first
        done = environment.change("--install")
        assert (done.returncode, done.stderr) == (0, "")
        written = {line.removeprefix("wrote ") for line in done.stdout.splitlines()}
        assert written == environment.files() - before
    assert environment.run("python", SHOW).stdout.split() == ["0.28.1", "True"]
    script = tmp_path / "train.py"
    script.write_text("import os, horovod; print(horovod.__version__[:6], os.environ['HOROVOD_RANK'])")
    ran = environment.run("horovodrun", "-np", "2", str(environment.bin / "python"), str(script))
    assert sorted(ran.stdout.splitlines()) == ["[rank 0] 0.28.1 0", "[rank 1] 0.28.1 1"], ran.stderr
    assert environment.run("horovodrun", "-np", "0", "true").stderr.startswith("horovodrun: error:")
    done = environment.change("--uninstall")
    assert done.returncode == 0, done.stderr
    assert environment.files() == before
    assert environment.change("--uninstall").stderr.endswith("error: there is nothing to remove\n")


@pytest.mark.parametrize("real", ["package", "description", "command"])
def test_a_real_horovod_stays(real: str, environment: Environment) -> None:
    if real == "package":
        (environment.site / "horovod").mkdir()
        (environment.site / "horovod" / "__init__.py").write_text("")
    elif real == "description":
        (environment.site / "horovod-0.28.1.dist-info").mkdir()
        described = "Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n"
        (environment.site / "horovod-0.28.1.dist-info" / "METADATA").write_text(described)
    else:
        (environment.bin / "horovodrun").write_text("#!/bin/sh\n")
    before = environment.files()
    done = environment.change("--install")
    assert done.returncode == 2
    assert "error: a real Horovod is installed in " in done.stderr
    assert done.stderr.endswith(": uninstall it first\n")
    assert environment.change("--uninstall").returncode == 2
    assert environment.files() == before
