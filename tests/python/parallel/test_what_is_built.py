"""What a build has and a process would use: the modules beside the package, the launcher and MPI decide."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import roundelay.torch as hvd
from ranks import PROGRAMS, ROOT, Check, launch, mpirun, run_check
from roundelay import _core

NO_MPI = pytest.mark.skipif(mpirun() is None, reason="no mpirun")
COMPILER = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
NO_COMPILER = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


@pytest.mark.slow
@NO_MPI
def test_under_mpirun(check: Check) -> None:
    run_check(check, 2, fresh=True)


def test_without_mpi(check: Check) -> None:
    run_check(check, 2, mpi=False)


def check_what_is_enabled_is_in_use() -> None:
    by_mpirun = "OMPI_COMM_WORLD_RANK" in os.environ
    assert (hvd.mpi_enabled(), hvd.gloo_enabled()) == (by_mpirun, not by_mpirun)
    assert _core.transports()["bootstrap"] == ("mpi" if by_mpirun else "store")
    assert ("/libmpi." in Path("/proc/self/maps").read_text()) == by_mpirun


@pytest.mark.slow
@NO_MPI
@pytest.mark.parametrize(("level", "expected"), [("multiple", True), ("serialized", False)])
def test_threads_of_mpi(level: str, expected: bool) -> None:
    run = launch([sys.executable, str(PROGRAMS / "mpi_threads.py"), level, str(expected)], 2)
    assert run.output.count("asked") == 2, run.output


def answers(package: Path, *more: Path) -> dict[str, Any]:
    """Of a process that finds Roundelay, and more, in these folders."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [package, *more]))}
    words = [sys.executable, str(PROGRAMS / "what_is_built.py")]
    asked = subprocess.run(words, env=environment, cwd=package, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
    return dict(json.loads(asked.stdout))


def package_without(folder: Path, *modules: str) -> Path:
    """The package as a build without these modules leaves it; the one for CUDA is there otherwise."""
    whole = ROOT / "python"
    for_torch = [path.relative_to(whole) for path in whole.glob("roundelay/for_torch/*")]
    for part in (Path("roundelay"), *for_torch):
        (folder / part).mkdir(parents=True)
        for entry in (whole / part).iterdir():
            if not entry.name.startswith((*modules, "_cuda", "for_torch")):
                (folder / part / entry.name).symlink_to(entry)
    if "_cuda" not in modules:
        (folder / "roundelay" / "_cuda.so").touch()
    return folder


def make_nccl(folder: Path, version: int) -> Path:
    """A library that has NCCL's functions, and tells a version, where PyTorch's wheels have theirs."""
    declared = (ROOT / "csrc" / "platform" / "nccl" / "abi.h").read_text()
    names = [name for name in re.findall(r"  X\(\w+, (\w+)\)", declared) if name != "GetVersion"]
    assert names
    source = "".join(f"int nccl{name}(void) {{ return 0; }}\n" for name in names)
    source += f"int ncclGetVersion(int* version) {{ *version = {version}; return 0; }}\n"
    library = folder / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    library.parent.mkdir(parents=True)
    assert COMPILER is not None
    words = [COMPILER, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(words, input=source, text=True, check=True)
    return folder


@NO_COMPILER
@pytest.mark.parametrize("missing", ["_mpi", "_c10d", "_cuda"])
def test_a_build_lacks_one_module(tmp_path: Path, missing: str) -> None:
    found = answers(package_without(tmp_path, missing), make_nccl(tmp_path / "site", 23007))
    there = {
        "mpi_built": missing != "_mpi",
        "gloo_built": missing != "_c10d",
        "cuda_built": missing != "_cuda",
        "nccl_built": 0 if missing == "_cuda" else 23007,
    }
    assert found == {**there, **dict.fromkeys(("ddl_built", "ccl_built", "rocm_built"), False)}


@NO_COMPILER
def test_an_nccl_that_is_too_old_counts_as_none(tmp_path: Path) -> None:
    package = package_without(tmp_path, "nothing")
    assert answers(package, make_nccl(tmp_path / "site", 2408))["nccl_built"] == 0
