"""A package with modules for two MPIs takes the one whose library this process can use."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from roundelay._internal import mpi_modules

COMPILER = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")

Library = Callable[[str], Path]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """Makes one of the libraries, here under names that no other test or machine has."""
    own = {
        abi: tuple(f"{tmp_path.name}-{name}" for name in names)
        for abi, names in mpi_modules.LIBRARIES.items()
    }
    monkeypatch.setattr(mpi_modules, "LIBRARIES", own)
    monkeypatch.setattr(mpi_modules, "_PACKAGE", tmp_path)
    for abi in own:
        (tmp_path / f"_mpi_{abi}.so").touch()
    (tmp_path / "lib").mkdir()

    def make(name: str) -> Path:
        path = tmp_path / "lib" / f"{tmp_path.name}-{name}"
        words = [
            str(COMPILER),
            "-shared",
            "-x",
            "c",
            "/dev/null",
            "-o",
            str(path),
            f"-Wl,-soname,{path.name}",
        ]
        subprocess.run(words, check=True)
        return path

    return make


def chosen(folder: Path, *marks: str) -> str:
    path = mpi_modules.choose({"LD_LIBRARY_PATH": str(folder / "lib"), **dict.fromkeys(marks, "2")})
    return Path(str(path)).name


@pytest.mark.parametrize(
    ("libraries", "mark", "abi"),
    [
        (["libmpi.so.40", "libmpi.so.12"], "OMPI_COMM_WORLD_SIZE", "openmpi"),
        (["libmpi.so.40", "libmpi.so.12"], "PMI_RANK", "mpich"),
        (["libmpi.so.40", "libmpich.so.12"], "MV2_COMM_WORLD_SIZE", "mpich"),
        (["libmpi.so.40", "libmpi.so.12"], "PMIX_RANK", "openmpi"),
        (["libmpich.so.12"], "PMIX_RANK", "mpich"),
        (["libmpi.so.40"], "PMI_RANK", "openmpi"),  # srun speaks PMI with an Open MPI, too
    ],
)
def test_the_launcher_and_what_is_here_decide(
    library: Library, tmp_path: Path, libraries: list[str], mark: str, abi: str
) -> None:
    for name in libraries:
        library(name)
    assert chosen(tmp_path, mark) == f"_mpi_{abi}.so"


def test_an_mpi_that_is_loaded_decides(library: Library, tmp_path: Path) -> None:
    ctypes.CDLL(str(library("libmpi.so.12")))
    library("libmpi.so.40")
    assert chosen(tmp_path, "OMPI_COMM_WORLD_SIZE") == "_mpi_mpich.so"


def test_no_mpi_is_one_line_with_the_cure(library: Library, tmp_path: Path) -> None:
    library("libmpi.so.12").write_text("no library")
    with pytest.raises(RuntimeError) as caught:
        chosen(tmp_path, "PMI_RANK")
    text = str(caught.value)
    assert "\n" not in text
    assert f"{tmp_path.name}-libmpi.so.40: cannot open shared object file" in text
    assert "libmpi.so.12: file too short" in text or "libmpi.so.12: invalid ELF header" in text
    assert "pip install mpich" in text


def test_one_module_is_taken_as_it_is(library: Library, tmp_path: Path) -> None:
    (tmp_path / "_mpi_openmpi.so").unlink()
    assert chosen(tmp_path, "OMPI_COMM_WORLD_SIZE") == "_mpi_mpich.so"
    (tmp_path / "_mpi_mpich.so").unlink()
    assert mpi_modules.choose({}) is None
