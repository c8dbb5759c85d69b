"""Builds the modules of a wheel that have nothing of Python or PyTorch in them: one build for all wheels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NVCC = ROOT / "build" / "cuda" / "nvidia" / "cu13" / "bin"  # where make fetches it if there is none on PATH
CUDA = "_cuda"  # the module for GPUs
# Leaves out what no module calls: half of the module for an MPI.
SMALL = ("CMAKE_CXX_FLAGS=-ffunction-sections", "CMAKE_MODULE_LINKER_FLAGS=-s -Wl,--gc-sections")


def mpich(source: Path, programs: Path, folder: Path) -> Path:
    """Build the module for MPICH's ABI in the folder; return its path. programs: MPICH's and patchelf."""
    module = _build(source, "_mpi", folder, programs, "-DROUNDELAY_WITH_MPI=ON", "-DROUNDELAY_WITH_CUDA=OFF")
    # Debian gives the library another name: mpi_modules.py finds it, and loads it before the module.
    words = ["--remove-needed", "libmpi.so.12", "--set-rpath", "$ORIGIN"]
    subprocess.run([programs / "patchelf", *words, module], check=True)
    return module


def cuda(source: Path, programs: Path, folder: Path) -> Path:
    """Build the module for NVIDIA's GPUs in the folder; return its path. It has CUDA's runtime in it."""
    return _build(source, CUDA, folder, programs, "-DROUNDELAY_WITH_MPI=OFF", "-DROUNDELAY_WITH_CUDA=ON")


def _build(source: Path, target: str, folder: Path, programs: Path, *defines: str) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    path = os.pathsep.join([str(programs), os.environ["PATH"], str(NVCC)])
    configure = [
        "-S", str(source), "-B", str(folder), "-GNinja", "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG", "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
        "-DROUNDELAY_WITH_TORCH=OFF", *(f"-D{define}" for define in SMALL), *defines,
    ]  # fmt: skip
    for words in (configure, ["--build", str(folder), "--target", target]):
        done = subprocess.run(
            [programs / "cmake", *words],
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(f"{done.stdout}{target} of the wheel does not build")
    (module,) = (folder / "csrc").glob(f"{target}*.so")
    return module
